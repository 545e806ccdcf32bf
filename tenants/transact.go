package tenants

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Transact runs fn in a transaction of one member, which the context names: see [WithTenant]. The
// context that fn gets names it too, so what fn publishes goes there. A transaction of another
// member in ctx is refused with outmill.ErrForeignTx. See roles.Transactor.
func (s *Set) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	const call = "transact"
	m, inTx, done, err := s.one(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	transactor, err := roleOf[roles.Transactor](transactorOf).in(m)
	if err != nil {
		return err
	}
	if fn == nil {
		return transactor.Transact(ctx, nil)
	}
	var own error
	err = s.call(ctx, m, call, endless, func(ctx context.Context) error {
		if !inTx {
			s.settleBefore(ctx, m)
		}
		own = transactor.Transact(ctx, func(ctx context.Context) error { return fn(WithTenant(ctx, m.name())) })
		return own
	})
	switch {
	case err == nil && !inTx:
		s.woken(m, "")
	case err != nil && !errors.Is(err, storekit.ErrStoreAway):
		// The error is fn's, as it is.
		return own
	}
	return err
}

// settleBefore makes the registrations that the member owes before a transaction, in which an append cannot.
// If that fails, the function runs all the same, because it may append nothing.
func (s *Set) settleBefore(ctx context.Context, m *member) {
	if err := s.settleDebts(ctx, m); err != nil && ctx.Err() == nil {
		s.report("Groups are not registered in a member, what transactions append to it is refused", m.name(), err)
	}
}

// TxLimit is the shortest limit of the members. See roles.Transactor.
func (s *Set) TxLimit() time.Duration {
	// This looks at the members again if they have changed.
	s.snapshot()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.txLimit
}

// MayBeCommitted asks the member that ctx names. See storekit.CommitJudge.
func (s *Set) MayBeCommitted(ctx context.Context, err error) bool {
	m, _, done, unknown := s.one(ctx, "judge a commit")
	if unknown != nil {
		return true
	}
	defer done()
	return m.judge == nil || m.judge.MayBeCommitted(ctx, err)
}
