package tenants

import (
	"cmp"
	"context"
	"time"

	"github.com/outmill/outmill/roles"
)

// A saga is in one member, which the context of each call names: see [WithTenant].

// FindSaga reads a saga of the member that ctx names. See roles.Sagas.
func (s *Set) FindSaga(ctx context.Context, kind, correlation string, state any, options roles.SagaOptions) (*roles.Saga, error) {
	return get(ctx, s, "find a saga", sagasOf, func(ctx context.Context, sagas roles.Sagas) (*roles.Saga, error) {
		return sagas.FindSaga(ctx, kind, correlation, state, options)
	})
}

// ListSagas lists sagas of the member that ctx names. See roles.Sagas.
func (s *Set) ListSagas(ctx context.Context, query roles.SagaQuery, options roles.SagaOptions) (page roles.SagaPage, err error) {
	page.Next = query.After
	err = do(ctx, s, "list sagas", sagasOf, func(ctx context.Context, sagas roles.Sagas) (err error) {
		page, err = sagas.ListSagas(ctx, query, options)
		return err
	})
	return page, err
}

// InsertSaga stores a new saga in the member that ctx names. See roles.Sagas.
func (s *Set) InsertSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	return do(ctx, s, "insert a saga", sagasOf, func(ctx context.Context, sagas roles.Sagas) error {
		return sagas.InsertSaga(ctx, saga, state, options)
	})
}

// UpdateSaga stores the state in the member that ctx names. See roles.Sagas.
func (s *Set) UpdateSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	return do(ctx, s, "update a saga", sagasOf, func(ctx context.Context, sagas roles.Sagas) error {
		return sagas.UpdateSaga(ctx, saga, state, options)
	})
}

// DeleteSaga deletes the saga from the member that ctx names. See roles.Sagas.
func (s *Set) DeleteSaga(ctx context.Context, saga *roles.Saga, options roles.SagaOptions) error {
	return do(ctx, s, "delete a saga", sagasOf, func(ctx context.Context, sagas roles.Sagas) error {
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
	prepare := func(ctx context.Context, sagas roles.Sagas) error { return sagas.PrepareSagas(ctx, kinds...) }
	if key, err := s.keyFor(ctx, nil); err == nil && cmp.Or(key, s.cfg.DefaultTenant) != "" {
		return do(ctx, s, call, sagasOf, prepare)
	}
	return joined(s.each(ctx, call, long, having(members, sagasOf), func(ctx context.Context, m *member) error {
		return prepare(ctx, m.sagas)
	}))
}

// DeleteFinishedSagas deletes finished sagas of all members that keep some. See roles.Sagas.
func (s *Set) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	return tidy(ctx, s, "delete finished sagas", limit, sagasOf, func(sagas roles.Sagas, ctx context.Context, limit int) (int, error) {
		return sagas.DeleteFinishedSagas(ctx, kind, retention, limit)
	})
}

// RetainSaga says how long a finished saga of the member that ctx names is kept. See roles.Sagas.
func (s *Set) RetainSaga(ctx context.Context, saga *roles.Saga, retention time.Duration, options roles.SagaOptions) error {
	return do(ctx, s, "retain a saga", sagasOf, func(ctx context.Context, sagas roles.Sagas) error {
		return sagas.RetainSaga(ctx, saga, retention, options)
	})
}

// DeleteOldSagas deletes sagas of all members whose retention has passed. See roles.Sagas.
func (s *Set) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return tidy(ctx, s, "delete old sagas", limit, sagasOf, roles.Sagas.DeleteOldSagas)
}
