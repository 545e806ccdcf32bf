package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Within returns router middleware that handles each message in a transaction that transact
// opens, such as one of gorm, bun, sqlx, sqlc or ent. Inboxes and sagas on the store that are
// added after it take part in this transaction, so handlers write with their own library, and
// their writes commit together with the note and the messages that they publish:
//
//	within, err := inbox.Within(store, func(ctx context.Context, fn func(ctx context.Context) error) error {
//		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
//			return fn(context.WithValue(store.WithTx(ctx, tx), txKey{}, tx))
//		})
//	})
//	router.AddMiddleware(subscriber.KeepError, within, box.Middleware)
//
// transact begins a transaction in the database of the store, calls fn, commits if fn returns
// nil, and rolls back if fn returns an error or panics. It returns the error of fn or its own.
// fn takes a context that is derived from the one of transact and carries the transaction, as
// that of store.WithTx does; it becomes the context of the message. The context may carry more,
// such as the library's own transaction for the handlers. [Begin] makes such a function for
// libraries without one. transact may call fn again after it has rolled back: each run gets the
// message as it came.
//
// The message is acked when transact has returned nil. If fn has succeeded and transact returns
// an error, the commit has failed, which is a failed attempt as any other error, or nobody knows
// whether it has succeeded (storekit.ErrCommitInDoubt). Then the message comes again without an
// attempt, and the inbox finds its note if the transaction was committed.
//
// If the context of a message carries a transaction of the store already, Within uses it and
// does not call transact. For a tenants.Set, transact opens the transaction in the database of
// the message's tenant (outmill.Delivery has its name as Store), and carries it by WithTx of
// that tenant's store.
//
// Within needs no inbox: without one, the work of a message that is handled twice is committed
// twice. It returns outmill.ErrInvalidConfig for a nil store or function. The middleware may be
// used concurrently, if transact may.
func Within(store outmill.Writer, transact func(ctx context.Context, fn func(ctx context.Context) error) error) (
	message.HandlerMiddleware, error) {
	if outmill.IsNil(store) || transact == nil {
		return nil, fmt.Errorf("%w: inbox.Within: the store or the function is nil", outmill.ErrInvalidConfig)
	}
	w := &within{store: store, transact: transact}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return w.handle(msg, h) }
	}, nil
}

// Begin returns a function for [Within], for libraries whose transactions have the methods
// Commit and Rollback, such as *sql.Tx (and so sqlc), *sqlx.Tx, bun.Tx and the Tx of ent:
//
//	inbox.Within(store, inbox.Begin(
//		func(ctx context.Context) (*sqlx.Tx, error) { return db.BeginTxx(ctx, nil) },
//		func(ctx context.Context, tx *sqlx.Tx) context.Context {
//			return context.WithValue(store.WithTx(ctx, tx), txKey{}, tx)
//		}))
//
// begin begins a transaction, and carry returns the context that carries it. The function rolls
// the transaction back if the handler returns an error or panics, or if the commit fails.
func Begin[Tx interface {
	Commit() error
	Rollback() error
}](begin func(ctx context.Context) (Tx, error), carry func(ctx context.Context, tx Tx) context.Context,
) func(ctx context.Context, fn func(ctx context.Context) error) error {
	return func(ctx context.Context, fn func(ctx context.Context) error) error {
		tx, err := begin(ctx)
		if err != nil {
			return err
		}
		committed := false
		defer func() {
			// A Rollback after the commit has no effect, but ent calls its hooks for it.
			if !committed {
				_ = tx.Rollback()
			}
		}()
		if err := fn(carry(ctx, tx)); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		committed = true
		return nil
	}
}

type within struct {
	store    outmill.Writer
	transact func(ctx context.Context, fn func(ctx context.Context) error) error
}

// withinKey is the key of the outerRun that a context belongs to.
type withinKey struct{}

// outerRun is one message in a transaction of Within.
type outerRun struct {
	original
	store    outmill.Writer
	handler  message.HandlerFunc
	produced []*message.Message
	// runs counts the calls of the handler, and err is the error of the last one.
	runs int
	err  error
}

func (w *within) handle(msg *message.Message, h message.HandlerFunc) ([]*message.Message, error) {
	original := keep(msg)
	joined, err := storekit.InTransaction(original.ctx, w.store)
	if err != nil {
		return nil, fmt.Errorf("outmill/inbox: Within: %w", err)
	}
	if joined {
		return h(msg)
	}
	run := &outerRun{original: original, store: w.store, handler: h}
	ctx := context.WithValue(original.ctx, withinKey{}, run)
	err = storekit.CommitPatiently(ctx, func(ctx context.Context, fn func(ctx context.Context) error) error {
		return run.explain(ctx, w.transact(ctx, func(ctx context.Context) error { return run.once(ctx, fn) }))
	}, run.handle)
	if err != nil {
		return nil, err
	}
	return run.produced, nil
}

// once calls fn in the transaction of ctx.
func (r *outerRun) once(ctx context.Context, fn func(ctx context.Context) error) error {
	r.runs++
	r.produced, r.err = nil, r.check(ctx)
	if r.err == nil {
		r.err = fn(ctx)
	}
	return r.err
}

func (r *outerRun) handle(ctx context.Context) (err error) {
	r.produced, err = r.pass(ctx, r.handler)
	return err
}

func (r *outerRun) check(ctx context.Context) error {
	if of, _ := ctx.Value(withinKey{}).(*outerRun); of != r {
		return errors.New("outmill/inbox: Within: the context of the transaction is not derived from the context that the function got: " +
			"derive it, because it also carries the delivery of the message")
	}
	if _, err := storekit.RequireTx(r.store.TxOf(ctx)); err != nil {
		return fmt.Errorf("outmill/inbox: Within: the context carries no transaction of the store %q that can be used: "+
			"pass the result of the store's WithTx: %w", r.store.Name(), err)
	}
	return nil
}

// explain returns the error of the last run if it is the reason for the end of the transaction.
func (r *outerRun) explain(ctx context.Context, err error) error {
	switch {
	case r.runs == 0 && err == nil:
		return errors.New("outmill/inbox: Within: the function returned nil and has not called fn: call it in the transaction")
	case r.runs == 0:
		return fmt.Errorf("outmill/inbox: Within: no transaction has begun: %w", err)
	case r.err != nil && err == nil:
		return fmt.Errorf("outmill/inbox: Within: the function returned nil after fn had failed, and may have committed: "+
			"return the error of fn and roll back: %w", r.err)
	case r.err != nil && errors.Is(err, r.err):
		return r.err
	case r.err != nil:
		return errors.Join(r.err, err)
	case err != nil:
		return fmt.Errorf("outmill/inbox: Within: the commit has failed, so the message comes again: %w",
			storekit.JudgeCommit(ctx, r.store, err))
	}
	return nil
}
