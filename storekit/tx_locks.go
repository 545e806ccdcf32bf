package storekit

import (
	"context"
	"sync"
)

// TxLocks has one lock for each value that is passed to Lock. The value is usually a user's
// transaction, in which concurrent appends would otherwise mix up their savepoints. The
// zero value is ready to use. TxLocks is safe for concurrent use.
type TxLocks struct {
	mu    sync.Mutex
	locks map[any]*txLock
	// spare is a lock that nobody uses: most calls use one after the other.
	spare *txLock
}

type txLock struct {
	token chan struct{}
	users int
}

// Lock waits for the lock of tx, or until ctx ends. tx must be comparable. The lock is
// removed when its last user unlocks it.
func (l *TxLocks) Lock(ctx context.Context, tx any) (unlock func(), err error) {
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

func (l *TxLocks) join(tx any) *txLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks == nil {
		l.locks = map[any]*txLock{}
	}
	entry := l.locks[tx]
	if entry == nil {
		if entry, l.spare = l.spare, nil; entry == nil {
			entry = &txLock{token: make(chan struct{}, 1)}
		}
		l.locks[tx] = entry
	}
	entry.users++
	return entry
}

func (l *TxLocks) leave(tx any, entry *txLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entry.users--; entry.users == 0 {
		delete(l.locks, tx)
		l.spare = entry
	}
}
