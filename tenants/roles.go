package tenants

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
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
	transactor, err := role[roles.Transactor](m, "roles.Transactor")
	if err != nil {
		return err
	}
	if fn == nil {
		return transactor.Transact(ctx, nil)
	}
	var own error
	err = s.call(ctx, m, call, endless, func(ctx context.Context) error {
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

// TxLimit is the shortest limit of the members. See roles.Transactor.
func (s *Set) TxLimit() time.Duration {
	// This looks at the members again if they have changed.
	s.snapshot()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.txLimit
}

// HasTransactions is true. A member whose store was made without transactions refuses each
// transaction. See roles.Transactor.
func (*Set) HasTransactions() bool { return true }

// MayBeCommitted asks the member that ctx names. See storekit.CommitJudge.
func (s *Set) MayBeCommitted(ctx context.Context, err error) bool {
	m, _, done, unknown := s.one(ctx, "judge a commit")
	if unknown != nil {
		return true
	}
	defer done()
	judge, ok := outmill.As[storekit.CommitJudge](m.store)
	return !ok || judge.MayBeCommitted(ctx, err)
}

// in calls fn with the role of the member that ctx names.
func in[Role any](ctx context.Context, s *Set, call, name string, fn func(ctx context.Context, m *member, role Role) error) error {
	return s.inOne(ctx, call, func(m *member) (func(ctx context.Context) error, error) {
		found, err := role[Role](m, name)
		return func(ctx context.Context) error { return fn(ctx, m, found) }, err
	})
}

// inOne calls what choose returns, for the member that ctx names.
func (s *Set) inOne(ctx context.Context, call string, choose func(m *member) (func(ctx context.Context) error, error)) error {
	m, inTx, done, err := s.one(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	fn, err := choose(m)
	if err != nil {
		return err
	}
	return s.call(ctx, m, call, boundOf(inTx), fn)
}

// boundOf is the bound of a call for one member, in a transaction or not.
func boundOf(inTx bool) bound {
	if inTx {
		return waits
	}
	return long
}

const inboxRole, sagasRole, joinsRole = "roles.Inbox", "roles.Sagas", "roles.Joins"

// PutNote notes that a consumer handles a message, in the member that ctx names: see
// [WithTenant]. To that member, the message of another one comes from elsewhere. See roles.Inbox.
func (s *Set) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (duplicate bool, err error) {
	err = in(ctx, s, "put a note", inboxRole, func(ctx context.Context, m *member, inbox roles.Inbox) (err error) {
		note := note
		if note.Lease.Store != m.name() {
			note.Lease = outmill.Lease{}
		}
		note.Lease.Store = ""
		duplicate, err = inbox.PutNote(ctx, note, wait)
		return err
	})
	return duplicate, err
}

// HasNote asks the member that ctx names. See roles.Inbox.
func (s *Set) HasNote(ctx context.Context, consumer, key string) (noted bool, err error) {
	err = in(ctx, s, "look for a note", inboxRole, func(ctx context.Context, _ *member, inbox roles.Inbox) (err error) {
		noted, err = inbox.HasNote(ctx, consumer, key)
		return err
	})
	return noted, err
}

// DeleteNotes deletes notes of all members that keep some. See roles.Inbox.
func (s *Set) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete notes", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		inbox, ok := outmill.As[roles.Inbox](m.store)
		if !ok {
			return 0, nil
		}
		return inbox.DeleteNotes(ctx, limit)
	})
}

// FindSaga reads a saga of the member that ctx names. See roles.Sagas.
func (s *Set) FindSaga(ctx context.Context, kind, correlation string, state any, options roles.SagaOptions) (saga *roles.Saga,
	err error) {
	err = in(ctx, s, "find a saga", sagasRole, func(ctx context.Context, _ *member, sagas roles.Sagas) (err error) {
		saga, err = sagas.FindSaga(ctx, kind, correlation, state, options)
		return err
	})
	return saga, err
}

// ListSagas lists sagas of the member that ctx names. See roles.Sagas.
func (s *Set) ListSagas(ctx context.Context, query roles.SagaQuery, options roles.SagaOptions) (page roles.SagaPage, err error) {
	page.Next = query.After
	err = in(ctx, s, "list sagas", sagasRole, func(ctx context.Context, _ *member, sagas roles.Sagas) (err error) {
		page, err = sagas.ListSagas(ctx, query, options)
		return err
	})
	return page, err
}

// InsertSaga stores a new saga in the member that ctx names. See roles.Sagas.
func (s *Set) InsertSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	return in(ctx, s, "insert a saga", sagasRole, func(ctx context.Context, _ *member, sagas roles.Sagas) error {
		return sagas.InsertSaga(ctx, saga, state, options)
	})
}

// UpdateSaga stores the state in the member that ctx names. See roles.Sagas.
func (s *Set) UpdateSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	return in(ctx, s, "update a saga", sagasRole, func(ctx context.Context, _ *member, sagas roles.Sagas) error {
		return sagas.UpdateSaga(ctx, saga, state, options)
	})
}

// DeleteSaga deletes the saga from the member that ctx names. See roles.Sagas.
func (s *Set) DeleteSaga(ctx context.Context, saga *roles.Saga, options roles.SagaOptions) error {
	return in(ctx, s, "delete a saga", sagasRole, func(ctx context.Context, _ *member, sagas roles.Sagas) error {
		return sagas.DeleteSaga(ctx, saga, options)
	})
}

// PrepareSagas makes what the types need in the member that ctx names, and in each that joins later. If ctx
// names none, it does so in all members that keep sagas. See roles.Sagas.
func (s *Set) PrepareSagas(ctx context.Context, kinds ...string) error {
	const call = "prepare sagas"
	if err := s.life.Usable(ctx); err != nil {
		return failed(call, err)
	}
	s.mu.Lock()
	for _, kind := range kinds {
		s.kinds[kind] = struct{}{}
	}
	members, _ := s.list()
	s.mu.Unlock()
	if key, err := s.keyFor(ctx, nil); err == nil && cmp.Or(key, s.cfg.DefaultTenant) != "" {
		return in(ctx, s, call, sagasRole, func(ctx context.Context, _ *member, sagas roles.Sagas) error {
			return sagas.PrepareSagas(ctx, kinds...)
		})
	}
	return joined(s.each(ctx, call, long, members, func(ctx context.Context, m *member) error {
		sagas, ok := outmill.As[roles.Sagas](m.store)
		if !ok {
			return nil
		}
		return sagas.PrepareSagas(ctx, kinds...)
	}))
}

// DeleteFinishedSagas deletes finished sagas of all members that keep some. See roles.Sagas.
func (s *Set) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	return s.tidy(ctx, "delete finished sagas", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		sagas, ok := outmill.As[roles.Sagas](m.store)
		if !ok {
			return 0, nil
		}
		return sagas.DeleteFinishedSagas(ctx, kind, retention, limit)
	})
}

// RetainSaga says how long a finished saga of the member that ctx names is kept. A member whose
// store has no such role keeps it until DeleteFinishedSagas, as it does without a set. See
// roles.Sagas.
func (s *Set) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, options roles.SagaOptions) error {
	return s.inOne(ctx, "retain a saga", func(m *member) (func(ctx context.Context) error, error) {
		return func(ctx context.Context) error {
			retaining, ok := outmill.As[roles.Sagas](m.store)
			if !ok {
				return storekit.CheckRetainSaga(saga, retention)
			}
			return retaining.RetainSaga(ctx, saga, retention, options)
		}, nil
	})
}

// DeleteOldSagas deletes sagas of all members that retain some, whose retention has passed. See
// roles.Sagas.
func (s *Set) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old sagas", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		retaining, ok := outmill.As[roles.Sagas](m.store)
		if !ok {
			return 0, nil
		}
		return retaining.DeleteOldSagas(ctx, limit)
	})
}
