package txtest

import (
	"context"
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
)

func brokenTransact() []mutant {
	return []mutant{
		{"runs functions without a transaction", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			return fn(ctx)
		}), []string{
			"ended: Transact fails if its transaction has ended before the call that also commits",
			"ended: Transact fails if its transaction has ended, also after the last call in it",
			"ended: Transact fails if its transaction has ended, or runs the function again",
			"notes: a handler that is stopped before its note, and goes on late, does nothing",
			"notes: a note of a lease that was lost is ErrLeaseLost, and nothing is written",
			"sagas: a rolled back transaction leaves no saga, no change and no message",
			"transact: Transact begins a transaction where the context carries one of another store",
			"transact: Transact commits what the function appended, when it returns nil",
			"transact: Transact does not commit after its context has ended",
			"transact: Transact in a transaction leaves repeats to the one who began it",
			"transact: Transact rolls back and returns the function's error",
			"transact: Transact runs the function again after an error that passes, in a new transaction",
			"transact: Transact takes part in the transaction of its context",
			"transact: a panic of the function rolls back and goes on",
		}},
		{"commits nothing", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			refused := errors.New("refused")
			err := m.Transact(ctx, func(ctx context.Context) error { return errors.Join(fn(ctx), refused) })
			if err != nil && err.Error() == "refused" {
				return nil
			}
			return err
		}), []string{
			"ended: Transact fails if its transaction has ended, also after the last call in it",
			"inbox: of two transactions with one note exactly one commits",
			"notes: a handler that is stopped before its note, and goes on late, does nothing",
			"notes: a lease that has ended, and that nobody has taken, is valid for a note",
			"notes: a lost lease comes before a duplicate, and leaves the transaction usable",
			"notes: a message that was handled and not acked is a duplicate at any time later, whatever was done with its record",
			"notes: a message whose handler is stopped is handled once, also after something was done with its record",
			"notes: notes of records that are gone or processed are deleted after their retention, and others stay",
			"notes: notes that stay keep no others from being deleted",
			"sagas: of two starts in open transactions one is refused",
			"sagas: of two updates in open transactions one is refused",
			"transact: Transact begins a transaction where the context carries one of another store",
			"transact: Transact commits what the function appended, when it returns nil",
			"transact: Transact does not commit after its context has ended",
			"transact: Transact does not run the function again after a commit whose answer was lost",
			"transact: Transact in a transaction leaves repeats to the one who began it",
			"transact: Transact runs the function again after an error that passes, in a new transaction",
			"transact: Transact takes part in the transaction of its context",
		}},
		{"commits in spite of an error", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			var failed error
			err := m.Transact(ctx, func(ctx context.Context) error {
				if failed = fn(ctx); errors.Is(failed, mutants.ErrPasses) {
					return failed
				}
				return nil
			})
			return errors.Join(err, failed)
		}), []string{
			"sagas: a rolled back transaction leaves no saga, no change and no message",
			"transact: Transact rolls back and returns the function's error",
			"transact: Transact takes part in the transaction of its context",
		}},
		{"repeats after any error", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			err := m.Transact(ctx, fn)
			if err != nil {
				err = m.Transact(ctx, fn)
			}
			return err
		}), []string{
			"transact: Transact does not commit after its context has ended",
			"transact: Transact does not run the function again after a commit whose answer was lost",
			"transact: Transact in a transaction leaves repeats to the one who began it",
			"transact: Transact rolls back and returns the function's error",
		}},
		{"commits after a panic", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			var panicked any
			err := m.Transact(ctx, func(ctx context.Context) (err error) {
				defer func() { panicked = recover() }()
				return fn(ctx)
			})
			if panicked != nil {
				panic(panicked)
			}
			return err
		}), []string{
			"transact: a panic of the function rolls back and goes on",
		}},
		{"swallows panics", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) (err error) {
			defer func() {
				if recover() != nil {
					err = errors.New("the function failed")
				}
			}()
			return m.Transact(ctx, fn)
		}), []string{
			"transact: a panic of the function rolls back and goes on",
		}},
		{"commits after the end of the context", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			return errors.Join(m.Transact(context.WithoutCancel(ctx), fn), ctx.Err())
		}), []string{
			"transact: Transact does not commit after its context has ended",
		}},
		{"begins a transaction within a transaction",
			transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
				return m.Once(ctx, fn)
			}), []string{
				"ended: Transact in a transaction that has ended is ErrInvalidTx, and nothing is written",
				"transact: Transact in a transaction leaves repeats to the one who began it",
				"transact: Transact runs the function again after an error that passes, in a new transaction",
				"transact: Transact takes part in a transaction that the caller began",
				"transact: Transact takes part in the transaction of its context",
			}},
		{"takes no part in a transaction that the caller began", func(m mutants.Memory) outmill.Store {
			return &joinsItsOwn{Memory: m}
		}, []string{
			"ended: Transact in a transaction that has ended is ErrInvalidTx, and nothing is written",
			"transact: Transact in a transaction leaves repeats to the one who began it",
			"transact: Transact takes part in a transaction that the caller began",
		}},
		{"refuses functions beside foreign transactions",
			transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
				if _, err := m.TxOf(ctx); err != nil {
					return err
				}
				return m.Transact(ctx, fn)
			}), []string{
				"transact: Transact begins a transaction where the context carries one of another store",
			}},
		{"takes no function for an empty one", func(m mutants.Memory) outmill.Store { return takesNoFunction{m} }, []string{
			"transact: Transact refuses a nil function",
		}},
		{"does not repeat", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			if tx, _ := m.TxOf(ctx); tx != nil {
				return m.Transact(ctx, fn)
			}
			return m.Once(ctx, fn)
		}), []string{
			"transact: Transact in a transaction leaves repeats to the one who began it",
			"transact: Transact runs the function again after an error that passes, in a new transaction",
		}},
		{"repeats in the same transaction", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			return m.Transact(ctx, again(fn))
		}), []string{
			"transact: Transact in a transaction leaves repeats to the one who began it",
			"transact: Transact runs the function again after an error that passes, in a new transaction",
		}},
		{"repeats within the caller's transaction", transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
			if tx, _ := m.TxOf(ctx); tx != nil {
				return m.Transact(ctx, again(fn))
			}
			return m.Transact(ctx, fn)
		}), []string{
			"transact: Transact in a transaction leaves repeats to the one who began it",
		}},
		{"runs the function again after an unknown commit",
			transacts(func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error {
				err := m.Transact(ctx, fn)
				if errors.Is(err, mutants.ErrLost) {
					return m.Transact(ctx, fn)
				}
				return err
			}), []string{
				"transact: Transact does not run the function again after a commit whose answer was lost",
			}},
	}
}

// again runs fn again while its error is temporary.
func again(fn func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := fn(ctx)
		for range 3 {
			if errors.Is(err, mutants.ErrPasses) {
				err = fn(ctx)
			}
		}
		return err
	}
}

type transact func(m mutants.Memory, ctx context.Context, fn func(context.Context) error) error

// transacts makes mutants that run functions in a wrong way.
func transacts(how transact) func(mutants.Memory) outmill.Store {
	return func(m mutants.Memory) outmill.Store { return transactsOtherwise{m, how} }
}

type transactsOtherwise struct {
	mutants.Memory
	how transact
}

func (m transactsOtherwise) Transact(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return m.Memory.Transact(ctx, fn)
	}
	return m.how(m.Memory, ctx, fn)
}

type takesNoFunction struct{ mutants.Memory }

func (m takesNoFunction) Transact(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return nil
	}
	return m.Memory.Transact(ctx, fn)
}

// joinsItsOwn knows only transactions that it began itself.
type joinsItsOwn struct{ mutants.Memory }

type ownKey struct{}

func (m *joinsItsOwn) Transact(ctx context.Context, fn func(context.Context) error) error {
	if ctx.Value(ownKey{}) != nil || fn == nil {
		return m.Memory.Transact(ctx, fn)
	}
	return m.Repeat(func() error {
		return m.Once(ctx, func(ctx context.Context) error { return fn(context.WithValue(ctx, ownKey{}, true)) })
	})
}
