package txtest

import (
	"context"
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/mutants"
)

func brokenEnded() []mutant {
	return []mutant{
		{"appends without a transaction if the transaction has ended", func(m mutants.Memory) outmill.Store { return appendsAlone{m} }, []string{
			"ended: Append in a transaction that has ended is ErrInvalidTx, and nothing is written",
			"ended: Transact fails if its transaction has ended, or runs the function again",
		}},
		{"runs the function in a transaction that has ended, without it",
			transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
				err := m.Transact(ctx, fn)
				if tx, _ := m.TxOf(ctx); tx != nil && errors.Is(err, outmill.ErrInvalidTx) {
					return fn(context.Background())
				}
				return err
			}), []string{
				"ended: Transact in a transaction that has ended is ErrInvalidTx, and nothing is written",
			}},
		{"ignores that there is nothing to commit",
			transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
				done := false
				err := m.Transact(ctx, func(ctx context.Context) error {
					err := fn(ctx)
					done = err == nil
					return err
				})
				if done && errors.Is(err, outmill.ErrInvalidTx) {
					return nil
				}
				return err
			}), []string{
				"ended: Transact fails if its transaction has ended, also after the last call in it",
			}},
	}
}

type appendsAlone struct{ mutants.Memory }

func (m appendsAlone) Append(ctx context.Context, records ...*outmill.Record) error {
	err := m.Memory.Append(ctx, records...)
	if errors.Is(err, outmill.ErrInvalidTx) {
		return m.Memory.Append(context.Background(), records...)
	}
	return err
}

type startsAlone struct{ mutants.File }

func (m startsAlone) StartJoin(ctx context.Context, join *roles.Join) error {
	err := m.File.StartJoin(ctx, join)
	if errors.Is(err, outmill.ErrInvalidTx) {
		return m.File.StartJoin(context.Background(), join)
	}
	return err
}
