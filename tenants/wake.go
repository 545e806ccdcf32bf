package tenants

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Wake merges the wake-ups of all members, also of those that join later. The first call has
// every member listen, which may take connections: see Config.WithoutWake, and Config.MaxConnections, with which
// only the busiest members listen. See roles.Waker.
func (s *Set) Wake(ctx context.Context, woken func(topic string)) {
	s.notifier.Listen(ctx, woken)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waking || s.cfg.WithoutWake || s.life.Closed() {
		return
	}
	s.waking = true
	for _, m := range s.members {
		s.listen(m)
	}
}

// HearsOthers is false, because not every member may listen. See roles.Waker.
func (*Set) HearsOthers() bool { return false }

// woken has the readers of the topic look at the member with their next claim.
func (s *Set) woken(m *member, topic string) {
	m.stir()
	for _, r := range s.everyReader() {
		r.wake(m.name(), topic)
	}
	s.notifier.Notify(topic)
}

// appended wakes the readers of what was appended by this set.
func (s *Set) appended(m *member, records []*outmill.Record) {
	topics := storekit.TopicsOf(records)
	if len(topics) == 0 {
		topics = []string{""}
	}
	for _, topic := range topics {
		s.woken(m, topic)
	}
}
