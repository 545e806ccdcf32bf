package tenants

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"
)

// probePause is the longest pause between two questions to a member that hangs. It is short, because until
// the answer every call of the member fails.
const probePause = time.Second

// fault notes that a call failed in a member. One that hangs is asked in the background from then
// on, because a claim that asks it holds up the records of others.
func (s *Set) fault(m *member, err error) {
	if !m.fault(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.life.Closed() {
		s.background.Go(func() { s.probe(m) })
	}
}

// probe asks a member that hangs until it answers.
func (s *Set) probe(m *member) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	for storekit.Pause(ctx, min(time.Until(m.leftOutUntil()), probePause)) == nil {
		err := s.ask(ctx, m)
		if err == nil {
			m.well()
			s.woken(m, "")
			return
		}
		m.fault(m.failed("probe", err))
	}
}

// ask makes a call that is due anyway. It is the only one that goes to a member that is known to hang.
func (s *Set) ask(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	_, err := m.store.ReapExpired(ctx, 1)
	return err
}
