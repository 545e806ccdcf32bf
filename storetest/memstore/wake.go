package memstore

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// listener is a reader that wants hints.
type listener struct{ woken func(topic string) }

// Wake calls woken when records may have become claimable. See storekit.Waker. It hears
// every store of the database.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) {
	l := &listener{woken}
	s.db.mu.Lock()
	s.db.listeners[l] = struct{}{}
	s.db.mu.Unlock()
	forget := func() {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		delete(s.db.listeners, l)
	}
	context.AfterFunc(ctx, forget)
	context.AfterFunc(s.ctx, forget)
}

// ring returns what tells the listeners of the topics, to be called without the lock.
func (d *Database) ring(topics []string) func() {
	listeners := make([]*listener, 0, len(d.listeners))
	for l := range d.listeners {
		listeners = append(listeners, l)
	}
	return func() {
		for _, l := range listeners {
			for _, topic := range topics {
				l.woken(topic)
			}
		}
	}
}

// wake tells the listeners of any topic.
func (s *Store) wake() {
	s.db.mu.Lock()
	ring := s.db.ring([]string{""})
	s.db.mu.Unlock()
	ring()
}

// wakeIf wakes where a settlement has made a record due at once.
func (s *Store) wakeIf(err error, list []outmill.Settlement) {
	if err == nil && storekit.SomeAtOnce(list) {
		s.wake()
	}
}
