package sqltx

import (
	"context"
	"sync"
)

// Locks has one lock for each of what is passed to Lock, such as a transaction, so
// that its concurrent appends do not get into each other's savepoints. The zero
// value is ready.
type Locks struct {
	mu    sync.Mutex
	locks map[any]*lock
}

type lock struct {
	token chan struct{}
	users int
}

// Lock waits for the lock of tx, which can be compared, or for ctx to end. The lock is
// forgotten when its last user unlocks it.
func (l *Locks) Lock(ctx context.Context, tx any) (unlock func(), err error) {
	entry := l.join(tx)
	select {
	case entry.token <- struct{}{}:
		return func() {
			<-entry.token
			l.leave(tx, entry)
		}, nil
	case <-ctx.Done():
		l.leave(tx, entry)
		return nil, ctx.Err()
	}
}

func (l *Locks) join(tx any) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks == nil {
		l.locks = map[any]*lock{}
	}
	entry := l.locks[tx]
	if entry == nil {
		entry = &lock{token: make(chan struct{}, 1)}
		l.locks[tx] = entry
	}
	entry.users++
	return entry
}

func (l *Locks) leave(tx any, entry *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry.users--; entry.users == 0 {
		delete(l.locks, tx)
	}
}
