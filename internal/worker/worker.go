package worker

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// Worker claims records and settles them. Make one with New, Start it, Take
// from it, then Stop and Close it. All methods may be called concurrently, and
// Stop and Close at any time.
type Worker struct {
	cfg Config
	log watermill.LoggerAdapter

	claiming sync.WaitGroup
	rest     sync.WaitGroup
	stopped  chan struct{}

	// One goroutine waits on each of these; they hold at most one signal.
	readySignal   chan struct{}
	roomSignal    chan struct{}
	busySignal    chan struct{}
	settleSignal  chan struct{}
	flushedSignal chan struct{}
	poke          chan struct{}

	mu sync.Mutex
	// owner is for the claims to come; each item has that of its own lease.
	owner outmill.OwnerToken
	items map[outmill.WorkItemID]*Item
	bytes int
	// asked is what claims under way may bring; claims counts them all.
	asked  struct{ items, bytes int }
	claims int
	// ready may have items that were settled in the meantime.
	ready []*Item
	// keys has the items of each key that are not settled, in order.
	keys map[string][]*Item
	// tainted are the keys of which a record was given back while a claim was
	// under way: what that claim returns of them goes back as well.
	tainted  map[string]struct{}
	outcomes []outcome
	// giveBacks counts the outcomes that must reach the store before the next
	// ordered claim.
	giveBacks int
	flushing  int
	// solo is a suspect that waits until it is alone, or is being handled.
	solo   *Item
	topics outmill.Topics
	limit  int
	// wishes counts the changes of topics and limit.
	wishes int
	// rounds counts finished claims; roundDone is closed after each.
	rounds    int
	lastEmpty bool
	lastErr   error
	roundDone chan struct{}
	settledN  int

	stopClaiming context.CancelFunc
	stopRest     context.CancelFunc
	stopping     bool
	closing      bool
}

// New makes a worker that does nothing yet.
func New(cfg Config) *Worker {
	return &Worker{
		cfg:           cfg,
		owner:         outmill.NewOwnerToken(),
		log:           cfg.Logger.With(watermill.LogFields{"store": cfg.Queue.Name(), "group": cfg.Group}),
		readySignal:   make(chan struct{}, 1),
		roomSignal:    make(chan struct{}, 1),
		busySignal:    make(chan struct{}, 1),
		settleSignal:  make(chan struct{}, 1),
		flushedSignal: make(chan struct{}, 1),
		poke:          make(chan struct{}, 1),
		items:         map[outmill.WorkItemID]*Item{},
		keys:          map[string][]*Item{},
		tainted:       map[string]struct{}{},
		roundDone:     make(chan struct{}),
		stopped:       make(chan struct{}),
		topics:        cfg.Topics,
		limit:         cfg.BatchSize,
	}
}

// Start begins to claim. Values of ctx are for the calls to the store; its end
// stops the claiming, as Stop does. A worker starts once, and not after Stop.
func (w *Worker) Start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping || w.stopClaiming != nil {
		return
	}
	claimCtx, stopClaiming := context.WithCancel(ctx)
	restCtx, stopRest := context.WithCancel(context.WithoutCancel(ctx))
	w.stopClaiming, w.stopRest = stopClaiming, stopRest
	w.claiming.Go(func() { w.claimLoop(claimCtx) })
	if !w.ordered() {
		w.claiming.Go(func() { w.assistLoop(claimCtx) })
	}
	w.rest.Go(func() { w.keepLoop(restCtx) })
	w.rest.Go(func() { w.settleLoop(restCtx) })
}

// Take returns up to limit items, at least one; it waits for them, and returns
// ErrClosed once the worker was stopped. The items are the caller's to settle.
func (w *Worker) Take(ctx context.Context, limit int) ([]*Item, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if items := w.take(limit); len(items) > 0 {
			return items, nil
		}
		select {
		case <-w.readySignal:
		case <-w.stopped:
			return nil, outmill.ErrClosed
		case <-ctx.Done():
		}
	}
}

func (w *Worker) take(limit int) []*Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping {
		return nil
	}
	now := time.Now()
	for _, it := range w.ready {
		// Those behind it in its key go back with it.
		if it.state == queued && now.After(it.until) {
			w.settleLocked(it, outcome{kind: released})
		}
	}
	items := make([]*Item, 0, min(limit, len(w.ready)))
	rest := w.ready[:0]
	for _, it := range w.ready {
		switch {
		case it.state != queued:
		// A suspect is handled while nothing else is, so that it can only take
		// itself down.
		case len(items) == limit || it == w.solo && len(w.items) > 1:
			rest = append(rest, it)
		default:
			w.begin(it, now)
			items = append(items, it)
		}
	}
	clear(w.ready[len(rest):])
	w.ready = rest
	return items
}

func (w *Worker) begin(it *Item, now time.Time) {
	it.state = taken
	it.handling = w.cfg.Running.begin(it, now)
	if !w.cfg.AwaitStart {
		it.startedAt = now
	}
}

// Stop ends the claiming and gives back what was not taken. It returns when no
// further claim is under way; items that were taken are still to be settled.
func (w *Worker) Stop() {
	w.mu.Lock()
	if !w.stopping {
		w.stopping = true
		close(w.stopped)
	}
	if w.stopClaiming != nil {
		w.stopClaiming()
	}
	w.mu.Unlock()
	w.claiming.Wait()
	w.releaseWhere(func(*Item) bool { return true })
}

// Close waits until all that was settled is stored, at most until ctx ends, and
// then ends the worker. It stops it first where Stop was not called. What was
// taken and never settled is left to its lease.
func (w *Worker) Close(ctx context.Context) error {
	w.Stop()
	w.mu.Lock()
	w.closing = true
	stopRest := w.stopRest
	w.mu.Unlock()
	if stopRest == nil {
		return nil
	}
	w.releaseHeirs()
	err := w.waitFlushed(ctx)
	stopRest()
	w.rest.Wait()
	return err
}

// Settled returns how many items were settled so far; what was given back does
// not count.
func (w *Worker) Settled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settledN
}

// Poke makes the worker look for records at once.
func (w *Worker) Poke() { signal(w.poke) }

// SetTopics changes what is claimed from now on, and gives back what was
// claimed, not taken, and is no longer wanted.
func (w *Worker) SetTopics(topics outmill.Topics) {
	w.mu.Lock()
	w.topics = topics
	w.wishes++
	w.mu.Unlock()
	w.releaseWhere(func(it *Item) bool { return !topics.Match(it.Record.Topic) })
	w.Poke()
}

// SetLimit changes how many records are claimed at a time. With less than the
// batch size, no more than that many are in flight either: 1 is for a probe, 0
// pauses. What was claimed and not taken is given back then.
func (w *Worker) SetLimit(limit int) {
	w.mu.Lock()
	w.limit = limit
	w.wishes++
	w.mu.Unlock()
	if limit < w.cfg.BatchSize {
		w.releaseWhere(func(*Item) bool { return true })
	}
	signal(w.roomSignal)
	w.Poke()
}

// signal never blocks: a signal that waits already says the same.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
