package memstore

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Wake calls woken when records may have become claimable. See storekit.Waker. It hears
// every store of the database.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) {
	ctx, stop := context.WithCancel(ctx)
	context.AfterFunc(s.ctx, stop)
	s.db.notifier.Listen(ctx, woken)
}

// wake tells the listeners of any topic.
func (s *Store) wake() { s.db.notifier.Notify() }

// wakeIf wakes the listeners if a settlement has made a record due at once.
func (s *Store) wakeIf(err error, list []outmill.Settlement) {
	if err == nil && storekit.SomeAtOnce(list) {
		s.wake()
	}
}
