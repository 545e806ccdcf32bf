package tenants

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Transact runs fn in a transaction of one member, which the context names: see [WithTenant]. The
// context that fn gets names it too, so what fn publishes goes there. A transaction of another
// member in ctx is refused with outmill.ErrForeignTx. See storekit.Transactor.
func (s *Set) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	m, inTx, done, err := s.one(ctx, "transact")
	if err != nil {
		return err
	}
	defer done()
	transactor, err := role[storekit.Transactor](m, "storekit.Transactor")
	if err != nil {
		return err
	}
	if fn == nil {
		return transactor.Transact(ctx, nil)
	}
	// The error is fn's, as it is.
	err = transactor.Transact(ctx, func(ctx context.Context) error { return fn(WithTenant(ctx, m.name())) })
	if err == nil && !inTx {
		s.woken(m, "")
	}
	return err
}

// TxLimit is the shortest limit of the members. See storekit.Transactor.
func (s *Set) TxLimit() time.Duration {
	// This looks at the members again if they have changed.
	s.snapshot()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.txLimit
}

// HoldForTx makes leases ready for AckInTx, each in its member. See storekit.TxAcker.
func (s *Set) HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	return s.keep(ctx, "hold", lease, leases, func(ctx context.Context, m *member, leases []outmill.Lease) ([]outmill.Lease, error) {
		acker, err := role[storekit.TxAcker](m, "storekit.TxAcker")
		if err != nil {
			return nil, err
		}
		return acker.HoldForTx(ctx, lease, leases)
	})
}

// AckInTx makes records of one member processed with the member's transaction in ctx. The
// transaction of another member is refused with outmill.ErrForeignTx. See storekit.TxAcker.
func (s *Set) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	if err := s.life.Usable(ctx); err != nil {
		return failed("ack in a transaction", err)
	}
	if len(leases) == 0 {
		_, err := storekit.RequireTx(s.TxOf(ctx))
		return failed("ack in a transaction", err)
	}
	parts := split(s, leases, itself)
	for _, p := range parts {
		defer p.member.done()
	}
	switch {
	case len(parts) > 1:
		return failed("ack in a transaction", ErrMixedTenants)
	case len(parts) == 0 || len(parts[0].list) < len(leases):
		return failed("ack in a transaction", storekit.ErrLeaseLost)
	}
	m := parts[0].member
	acker, err := role[storekit.TxAcker](m, "storekit.TxAcker")
	if err != nil {
		return err
	}
	return m.failed("ack in a transaction", acker.AckInTx(ctx, by, bare(leases)))
}

// AckedInTx says that transactions that acked these records have committed. See storekit.TxAcker.
func (s *Set) AckedInTx(ctx context.Context, records []*outmill.Record) error {
	return inParts(ctx, s, "settle acks of transactions", records, (*outmill.Record).Lease,
		func(ctx context.Context, m *member, records []*outmill.Record) error {
			acker, err := role[storekit.TxAcker](m, "storekit.TxAcker")
			if err != nil {
				return err
			}
			list := make([]*outmill.Record, len(records))
			leases := make([]outmill.Lease, len(records))
			for i, r := range records {
				bare := *r
				bare.Store = ""
				list[i], leases[i] = &bare, bare.Lease()
			}
			err = acker.AckedInTx(ctx, list)
			if err == nil {
				m.drop(leases)
			}
			return err
		})
}

// in calls fn with the role of the member that ctx names.
func in[Role any](ctx context.Context, s *Set, call, name string, fn func(Role) error) error {
	m, _, done, err := s.one(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	found, err := role[Role](m, name)
	if err != nil {
		return err
	}
	return m.failed(call, fn(found))
}

const inboxRole, sagasRole, joinsRole = "storekit.Inbox", "storekit.Sagas", "storekit.Joins"

// PutNote notes that a consumer handles a message, in the member that ctx names: see
// [WithTenant]. See storekit.Inbox.
func (s *Set) PutNote(ctx context.Context, note storekit.Note, wait time.Duration) (duplicate bool, err error) {
	err = in(ctx, s, "put a note", inboxRole, func(inbox storekit.Inbox) (err error) {
		duplicate, err = inbox.PutNote(ctx, note, wait)
		return err
	})
	return duplicate, err
}

// HasNote asks the member that ctx names. See storekit.Inbox.
func (s *Set) HasNote(ctx context.Context, consumer, key string) (noted bool, err error) {
	err = in(ctx, s, "look for a note", inboxRole, func(inbox storekit.Inbox) (err error) {
		noted, err = inbox.HasNote(ctx, consumer, key)
		return err
	})
	return noted, err
}

// DeleteNotes deletes notes of all members that keep some. See storekit.Inbox.
func (s *Set) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete notes", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		inbox, ok := outmill.As[storekit.Inbox](m.store)
		if !ok {
			return 0, nil
		}
		return inbox.DeleteNotes(ctx, limit)
	})
}

// FindSaga reads a saga of the member that ctx names. See storekit.Sagas.
func (s *Set) FindSaga(ctx context.Context, kind, correlation string, state any, options storekit.SagaOptions) (saga *storekit.Saga,
	err error) {
	err = in(ctx, s, "find a saga", sagasRole, func(sagas storekit.Sagas) (err error) {
		saga, err = sagas.FindSaga(ctx, kind, correlation, state, options)
		return err
	})
	return saga, err
}

// ListSagas lists sagas of the member that ctx names. See storekit.Sagas.
func (s *Set) ListSagas(ctx context.Context, query storekit.SagaQuery, options storekit.SagaOptions) (page storekit.SagaPage, err error) {
	page.Next = query.After
	err = in(ctx, s, "list sagas", sagasRole, func(sagas storekit.Sagas) (err error) {
		page, err = sagas.ListSagas(ctx, query, options)
		return err
	})
	return page, err
}

// InsertSaga stores a new saga in the member that ctx names. See storekit.Sagas.
func (s *Set) InsertSaga(ctx context.Context, saga *storekit.Saga, state any, options storekit.SagaOptions) error {
	return in(ctx, s, "insert a saga", sagasRole, func(sagas storekit.Sagas) error { return sagas.InsertSaga(ctx, saga, state, options) })
}

// UpdateSaga stores the state in the member that ctx names. See storekit.Sagas.
func (s *Set) UpdateSaga(ctx context.Context, saga *storekit.Saga, state any, options storekit.SagaOptions) error {
	return in(ctx, s, "update a saga", sagasRole, func(sagas storekit.Sagas) error { return sagas.UpdateSaga(ctx, saga, state, options) })
}

// DeleteSaga deletes the saga from the member that ctx names. See storekit.Sagas.
func (s *Set) DeleteSaga(ctx context.Context, saga *storekit.Saga, options storekit.SagaOptions) error {
	return in(ctx, s, "delete a saga", sagasRole, func(sagas storekit.Sagas) error { return sagas.DeleteSaga(ctx, saga, options) })
}

// PrepareSagas makes what the types need in all members that keep sagas, and in each that joins
// later. See storekit.Sagas.
func (s *Set) PrepareSagas(ctx context.Context, kinds ...string) error {
	if err := s.life.Usable(ctx); err != nil {
		return failed("prepare sagas", err)
	}
	s.mu.Lock()
	for _, kind := range kinds {
		s.kinds[kind] = struct{}{}
	}
	members, _ := s.list()
	s.mu.Unlock()
	return joined(s.each(ctx, members, func(ctx context.Context, m *member) error {
		sagas, ok := outmill.As[storekit.Sagas](m.store)
		if !ok {
			return nil
		}
		return m.failed("prepare sagas", sagas.PrepareSagas(ctx, kinds...))
	}))
}

// DeleteFinishedSagas deletes finished sagas of all members that keep some. See storekit.Sagas.
func (s *Set) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	return s.tidy(ctx, "delete finished sagas", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		sagas, ok := outmill.As[storekit.Sagas](m.store)
		if !ok {
			return 0, nil
		}
		return sagas.DeleteFinishedSagas(ctx, kind, retention, limit)
	})
}

// RetainSaga says how long a finished saga of the member that ctx names is kept. A member whose
// store has no such role keeps it until DeleteFinishedSagas, as it does without a set. See
// storekit.SagaRetention.
func (s *Set) RetainSaga(ctx context.Context, saga *storekit.Saga, retention time.Duration, options storekit.SagaOptions) error {
	const call = "retain a saga"
	m, _, done, err := s.one(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	retaining, ok := outmill.As[storekit.SagaRetention](m.store)
	if !ok {
		return m.failed(call, storekit.CheckRetainSaga(saga, retention))
	}
	return m.failed(call, retaining.RetainSaga(ctx, saga, retention, options))
}

// DeleteOldSagas deletes sagas of all members that retain some, whose retention has passed. See
// storekit.SagaRetention.
func (s *Set) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old sagas", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		retaining, ok := outmill.As[storekit.SagaRetention](m.store)
		if !ok {
			return 0, nil
		}
		return retaining.DeleteOldSagas(ctx, limit)
	})
}
