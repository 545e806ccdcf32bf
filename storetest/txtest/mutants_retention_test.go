package txtest

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/mutants"
)

func brokenRetentions() []mutant {
	const (
		retained  = "retention: a finished saga is deleted when its retention has passed, and not before"
		without   = "retention: a saga without a retention is kept"
		limited   = "retention: DeleteOldSagas deletes sagas of all types, and no more than its limit"
		conflicts = "retention: a retention is for the version of a saga that is finished"
		inTx      = "retention: a retention takes part in the transaction"
		updated   = "retention: an update of a saga ends its retention"
		refused   = "retention: a retention that makes no sense is refused with a typed error"
	)
	return []mutant{
		{"deletes nothing", deletesOld(func(mutants.Memory, context.Context, int) (int, error) { return 0, nil }),
			[]string{limited, inTx, retained, refused}},
		{"deletes without a limit", deletesOld(func(m mutants.Memory, ctx context.Context, limit int) (int, error) {
			if limit > 0 {
				limit = 100
			}
			return m.DeleteOldSagas(ctx, limit)
		}), []string{limited}},
		{"deletes sagas of one type", retains(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, d time.Duration) error {
			if saga.Type != sagaKind {
				return nil
			}
			return m.RetainSaga(ctx, saga, d, roles.SagaOptions{})
		}), []string{limited}},
		{"deletes all that is finished", deletesOld(func(m mutants.Memory, ctx context.Context, limit int) (int, error) {
			n, err := m.DeleteFinishedSagas(ctx, sagaKind, time.Minute, limit)
			if err != nil || n == limit {
				return n, err
			}
			old, err := m.DeleteOldSagas(ctx, limit-n)
			return n + old, err
		}), []string{conflicts, inTx, retained, refused, updated, without}},
		{"keeps sagas too long", retains(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, d time.Duration) error {
			return m.RetainSaga(ctx, saga, d*100, roles.SagaOptions{})
		}), []string{inTx, limited, retained}},
		{"deletes sagas too early", retains(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, d time.Duration) error {
			return m.RetainSaga(ctx, saga, min(d, time.Hour), roles.SagaOptions{})
		}), []string{retained}},
		{"retains any version", retains(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, d time.Duration) error {
			found, err := m.FindSaga(ctx, saga.Type, saga.Correlation, &sagaState{}, roles.SagaOptions{})
			if err != nil {
				return m.RetainSaga(ctx, saga, d, roles.SagaOptions{})
			}
			return m.RetainSaga(ctx, found, d, roles.SagaOptions{})
		}), []string{conflicts}},
		{"retains outside of the transaction", retains(func(m mutants.Memory, _ context.Context, saga *roles.Saga, d time.Duration) error {
			return m.RetainSaga(context.Background(), saga, d, roles.SagaOptions{})
		}), []string{inTx, refused}},
		{"keeps the retention through an update", func(m mutants.Memory) outmill.Store { return &remembers{m, map[string]time.Duration{}} },
			[]string{updated}},
		{"retains for no time", retains(func(m mutants.Memory, ctx context.Context, saga *roles.Saga, d time.Duration) error {
			return m.RetainSaga(ctx, saga, max(d, time.Hour), roles.SagaOptions{})
		}), []string{refused}},
	}
}

// retains returns a mutant with another RetainSaga.
func retains(
	retain func(m mutants.Memory, ctx context.Context, saga *roles.Saga, d time.Duration) error,
) func(mutants.Memory) outmill.Store {
	return func(m mutants.Memory) outmill.Store { return retainer{m, retain} }
}

type retainer struct {
	mutants.Memory
	retain func(m mutants.Memory, ctx context.Context, saga *roles.Saga, d time.Duration) error
}

func (r retainer) RetainSaga(ctx context.Context, saga *roles.Saga, d time.Duration, _ roles.SagaOptions) error {
	return r.retain(r.Memory, ctx, saga, d)
}

// deletesOld returns a mutant with another DeleteOldSagas.
func deletesOld(remove func(m mutants.Memory, ctx context.Context, limit int) (int, error)) func(mutants.Memory) outmill.Store {
	return func(m mutants.Memory) outmill.Store { return oldDeleter{m, remove} }
}

type oldDeleter struct {
	mutants.Memory
	remove func(m mutants.Memory, ctx context.Context, limit int) (int, error)
}

func (o oldDeleter) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return o.remove(o.Memory, ctx, limit)
}

// remembers sets the retention of a saga again after each update.
type remembers struct {
	mutants.Memory
	retained map[string]time.Duration
}

func (r *remembers) RetainSaga(ctx context.Context, saga *roles.Saga, d time.Duration, options roles.SagaOptions) error {
	err := r.Memory.RetainSaga(ctx, saga, d, options)
	if err == nil {
		r.retained[saga.Correlation] = d
	}
	return err
}

func (r *remembers) UpdateSaga(ctx context.Context, saga *roles.Saga, state any, options roles.SagaOptions) error {
	err := r.Memory.UpdateSaga(ctx, saga, state, options)
	if d, ok := r.retained[saga.Correlation]; ok && err == nil && saga.Finished {
		err = errors.Join(err, r.Memory.RetainSaga(ctx, saga, d, options))
	}
	return err
}
