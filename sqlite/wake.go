package sqlite

import (
	"context"
	"sync"

	"github.com/outmill/outmill/storekit"
)

// Wake calls woken when records of a topic may have become claimable: see roles.Waker. It is
// called at once for this Store's own changes, and not for those of other processes. It is not
// called after ctx ends or the store is closed.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) {
	s.waker.notifier.Listen(ctx, woken)
}

// HearsOthers is false: see Wake. See roles.Waker.
func (*Store) HearsOthers() bool { return false }

// waker notifies readers when records may have become claimable, also after callers' commits.
type waker struct {
	// ctx ends when the store is closed.
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	notifier storekit.Notifier

	mu      sync.Mutex
	watched *watched
}

// watched is the caller's transaction whose commit the waker waits for.
type watched struct {
	tx     any
	stop   context.CancelFunc
	topics storekit.TopicSet
}

// add adds the topics of an append; an empty list stands for any topic.
func (w *watched) add(topics []string) {
	if len(topics) == 0 {
		topics = []string{""}
	}
	w.topics.Add(topics...)
}

func newWaker() *waker {
	ctx, end := context.WithCancel(context.Background())
	return &waker{ctx: ctx, end: end}
}

// watch runs fn in the background. fn returns once the transaction has committed or ctx has
// ended. After a commit, watch notifies the readers of the topics. If the transaction is
// watched already, the topics are added to that watch. If nobody listens, watch does nothing.
//
// There is one watch at a time: SQLite has one writer, so when another transaction has
// appended, the one before has ended.
func (w *waker) watch(tx any, topics []string, fn func(ctx context.Context) (committed bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || !w.notifier.HasListeners() {
		return
	}
	if w.watched != nil {
		if w.watched.tx == tx {
			w.watched.add(topics)
			return
		}
		w.watched.stop()
		w.notifier.Notify(w.watched.topics.List()...)
	}
	ctx, stop := context.WithTimeout(w.ctx, watchFor)
	current := &watched{tx: tx, stop: stop}
	current.add(topics)
	w.watched = current
	w.work.Go(func() {
		defer stop()
		if fn(ctx) {
			w.notifier.Notify(current.topics.List()...)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.watched == current {
			w.watched = nil
		}
	})
}

// forget ends the watch of a transaction that has ended.
func (w *waker) forget(tx any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched != nil && w.watched.tx == tx {
		w.watched.stop()
		w.watched = nil
	}
}

// close ends the watch and waits for it.
func (w *waker) close() {
	w.mu.Lock()
	w.end()
	w.notifier.Close()
	w.mu.Unlock()
	w.work.Wait()
}
