package txtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/mutants"
)

func brokenSagas() []mutant {
	return []mutant{
		{"ignores the case of correlation values", func(m mutants.Memory) outmill.Store { return lowersCase{m} }, []string{
			"sagas: a saga is found by its type and correlation value, with its state",
			"sagas: sagas beyond the limits are refused with typed errors",
		}},
		{"makes an id of its own",
			inserts(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				own := *saga
				own.ID = outmill.WorkItemID{}
				err := m.InsertSaga(ctx, &own, state, options)
				if err == nil {
					*saga = own
				}
				return err
			}), []string{
				"sagas: a saga is found by its type and correlation value, with its state",
			}},
		{"does not tell the new version",
			updates(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				own := *saga
				return m.UpdateSaga(ctx, &own, state, options)
			}), []string{
				"retention: a retention is for the version of a saga that is finished",
				"sagas: an update and a deletion of a version that is gone are conflicts",
				"sagas: an update stores the state and moves the version",
			}},
		{"saves without a look at the version", updates(savesAnyVersion), []string{
			"sagas: an update and a deletion of a version that is gone are conflicts",
			"sagas: of two updates in open transactions one is refused",
			"sagas: the field of the version can be named",
		}},
		{"looks at no version that has a name",
			updates(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				if options.VersionField != "" {
					return savesAnyVersion(m, ctx, saga, state, options)
				}
				return m.UpdateSaga(ctx, saga, state, options)
			}), []string{
				"sagas: the field of the version can be named",
			}},
		{"lists sagas of all types",
			lists(func(query *roles.SagaQuery) { query.Type = "" }, func(*roles.SagaPage) {}), []string{
				"sagas: sagas are listed without their states, the newest first, in pages",
				"sagas: sagas beyond the limits are refused with typed errors",
			}},
		{"lists the oldest saga first",
			lists(func(*roles.SagaQuery) {}, func(page *roles.SagaPage) { slices.Reverse(page.Sagas) }), []string{
				"sagas: sagas are listed without their states, the newest first, in pages",
			}},
		{"lists the newest sagas again",
			lists(func(query *roles.SagaQuery) { query.After = outmill.WorkItemID{} }, func(*roles.SagaPage) {}), []string{
				"sagas: sagas are listed without their states, the newest first, in pages",
			}},
		{"deletes any version", func(m mutants.Memory) outmill.Store { return deletesAnyVersion{m} }, []string{
			"sagas: an update and a deletion of a version that is gone are conflicts",
		}},
		{"starts a saga that exists",
			inserts(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				return ignore(roles.ErrSagaExists, m.InsertSaga(ctx, saga, state, options))
			}), []string{
				"sagas: a finished saga is kept until its retention has passed",
				"sagas: a start that another unique index refuses is an error, and no start of another",
				"sagas: a start that is refused leaves the transaction usable",
				"sagas: of two starts in open transactions one is refused",
				"sagas: of two starts of one saga one exists",
			}},
		{"lets two start one saga at the same time",
			inserts(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				err := m.InsertSaga(ctx, saga, state, options)
				if _, inTx := m.Tx(ctx); inTx && errors.Is(err, roles.ErrSagaExists) {
					if _, err := m.FindSaga(context.Background(), saga.Type, saga.Correlation, &sagaState{}, options); errors.Is(err,
						roles.ErrSagaNotFound) {
						return nil
					}
				}
				return err
			}), []string{
				"sagas: of two starts in open transactions one is refused",
			}},
		{"takes every error of a start for another start",
			inserts(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				err := m.InsertSaga(ctx, saga, state, options)
				if !isKnown(err) {
					return roles.ErrSagaExists
				}
				return err
			}), []string{
				"ended: calls about sagas in a transaction that has ended are ErrInvalidTx, and no saga changes",
				"sagas: a start that another unique index refuses is an error, and no start of another",
			}},
		{"takes every error of an update for a conflict",
			updates(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				err := m.UpdateSaga(ctx, saga, state, options)
				if !isKnown(err) {
					return roles.ErrSagaConflict
				}
				return err
			}), []string{
				"ended: calls about sagas in a transaction that has ended are ErrInvalidTx, and no saga changes",
				"sagas: an update that another unique index refuses is an error, and no conflict",
			}},
		{"saves outside of the transaction",
			updates(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				return m.UpdateSaga(context.Background(), saga, state, options)
			}), []string{
				"ended: calls about sagas in a transaction that has ended are ErrInvalidTx, and no saga changes",
				"sagas: a rolled back transaction leaves no saga, no change and no message",
			}},
		{"starts outside of the transaction",
			inserts(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				return m.InsertSaga(context.Background(), saga, state, options)
			}), []string{
				"ended: Transact fails if its transaction has ended before the call that also commits",
				"ended: calls about sagas in a transaction that has ended are ErrInvalidTx, and no saga changes",
				"sagas: a list sees what its transaction did, and not what another one has not committed",
				"sagas: a rolled back transaction leaves no saga, no change and no message",
			}},
		{"rolls back for a saga that exists",
			inserts(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				err := m.InsertSaga(ctx, saga, state, options)
				if tx, ok := m.Tx(ctx); ok && errors.Is(err, roles.ErrSagaExists) {
					return errors.Join(err, tx.Rollback())
				}
				return err
			}), []string{
				"sagas: a start that is refused leaves the transaction usable",
			}},
		{"deletes finished sagas at once", func(m mutants.Memory) outmill.Store { return deletesFinished{m, true} }, []string{
			"sagas: a finished saga is kept until its retention has passed",
		}},
		{"keeps finished sagas for ever", func(m mutants.Memory) outmill.Store { return deletesFinished{m, false} }, []string{
			"sagas: a finished saga is kept until its retention has passed",
		}},
		{"keeps unknown fields always",
			updates(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				options.KeepUnknown = true
				return m.UpdateSaga(ctx, saga, state, options)
			}), []string{
				"sagas: stored fields that the type has no longer are ignored, and dropped by an update",
			}},
		{"keeps no unknown fields",
			updates(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				options.KeepUnknown = false
				return m.UpdateSaga(ctx, saga, state, options)
			}), []string{
				"sagas: stored fields that the type has no longer are preserved on request, nested ones too",
			}},
		{"cuts correlation values",
			inserts(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
				own := *saga
				own.Correlation = strings.TrimSpace(own.Correlation)
				err := m.InsertSaga(ctx, &own, state, options)
				if err == nil {
					*saga = own
				}
				return err
			}), []string{
				"sagas: sagas beyond the limits are refused with typed errors",
			}},
	}
}

// isKnown reports whether an error is one of the errors of sagas.
func isKnown(err error) bool {
	return err == nil || errors.Is(err, roles.ErrSagaExists) || errors.Is(err, roles.ErrSagaConflict) ||
		errors.Is(err, outmill.ErrInvalidRecord)
}

type saveSaga func(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error

// savesAnyVersion saves a saga with its current version, so that it never finds a conflict.
func savesAnyVersion(m mutants.Memory, ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	for ctx.Err() == nil {
		err := m.UpdateSaga(ctx, saga, state, options)
		if !errors.Is(err, roles.ErrSagaConflict) {
			return err
		}
		found, err := m.FindSaga(ctx, saga.Type, saga.Correlation, &sagaState{}, options)
		if err != nil {
			return err
		}
		*saga = *found
	}
	return ctx.Err()
}

// inserts makes mutants that start sagas in a wrong way.
func inserts(how saveSaga) func(mutants.Memory) outmill.Store {
	return func(m mutants.Memory) outmill.Store { return insertsOtherwise{m, how} }
}

type insertsOtherwise struct {
	mutants.Memory
	how saveSaga
}

func (m insertsOtherwise) InsertSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	return m.how(m.Memory, ctx, saga, state, options)
}

// updates makes mutants that save sagas in a wrong way.
func updates(how saveSaga) func(mutants.Memory) outmill.Store {
	return func(m mutants.Memory) outmill.Store { return updatesOtherwise{m, how} }
}

type updatesOtherwise struct {
	mutants.Memory
	how saveSaga
}

func (m updatesOtherwise) UpdateSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	return m.how(m.Memory, ctx, saga, state, options)
}

type lowersCase struct{ mutants.Memory }

func (m lowersCase) InsertSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	saga.Correlation = strings.ToLower(saga.Correlation)
	return m.Memory.InsertSaga(ctx, saga, state, options)
}

// lists makes mutants that list sagas in a wrong way.
func lists(ask func(*roles.SagaQuery), answer func(*roles.SagaPage)) func(mutants.Memory) outmill.Store {
	return func(m mutants.Memory) outmill.Store { return listsOtherwise{m, ask, answer} }
}

type listsOtherwise struct {
	mutants.Memory
	ask    func(*roles.SagaQuery)
	answer func(*roles.SagaPage)
}

func (m listsOtherwise) ListSagas(ctx context.Context, query roles.SagaQuery, options roles.SagaOptions) (roles.SagaPage, error) {
	m.ask(&query)
	page, err := m.Memory.ListSagas(ctx, query, options)
	m.answer(&page)
	return page, err
}

type deletesAnyVersion struct{ mutants.Memory }

func (m deletesAnyVersion) DeleteSaga(ctx context.Context, saga *roles.Saga, options roles.SagaOptions) error {
	found, err := m.FindSaga(ctx, saga.Type, saga.Correlation, &sagaState{}, options)
	if err != nil {
		return err
	}
	return m.Memory.DeleteSaga(ctx, found, options)
}

// deletesFinished uses another retention than the caller asks for.
type deletesFinished struct {
	mutants.Memory
	early bool
}

func (m deletesFinished) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	if m.early {
		retention = 0
	} else {
		retention *= 1000
	}
	return m.Memory.DeleteFinishedSagas(ctx, kind, retention, limit)
}
