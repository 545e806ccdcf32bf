package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

const (
	firstPause = 2 * time.Millisecond
	lastPause  = 200 * time.Millisecond
	// tryWithin bounds how long work is repeated that fails for a reason that passes. It is long
	// enough for the election of another primary.
	tryWithin = 20 * time.Second
	// repeatTxFor bounds how long the transaction of a user is repeated, as the driver does.
	repeatTxFor = 2 * time.Minute
	// abortWithin bounds the cleanup after a failure.
	abortWithin = 2 * time.Second
)

// errContended says that other processes changed the same documents.
var errContended = errors.New("other processes changed the same records during each attempt")

// alone returns ctx without the caller's session, because the driver would use that session for
// all operations.
func alone(ctx context.Context) context.Context { return driver.NewSessionContext(ctx, nil) }

// do runs fn outside a transaction, and repeats it if it fails for a reason that passes. fn may
// run twice.
func (s *Store) do(ctx context.Context, operation string, fn func(ctx context.Context) error) error {
	return s.doWhile(ctx, operation, repeatable, fn)
}

// doOnce is do for work that must not take effect twice.
func (s *Store) doOnce(ctx context.Context, operation string, fn func(ctx context.Context) error) error {
	return s.doWhile(ctx, operation, passes, fn)
}

func (s *Store) doWhile(ctx context.Context, operation string, worthIt func(error) bool, fn func(ctx context.Context) error) error {
	ctx = alone(ctx)
	err := s.ready(ctx)
	if err == nil {
		err = againWhile(ctx, worthIt, func() error { return fn(ctx) })
	}
	return s.explain(ctx, operation, err)
}

// transact runs fn in the store's own transaction, and repeats it if it fails for a reason that
// passes. A store without transactions runs fn without one.
func (s *Store) transact(ctx context.Context, operation string, fn func(ctx context.Context) error) error {
	if s.config.WithoutTransactions {
		return s.do(ctx, operation, fn)
	}
	return s.do(ctx, operation, func(ctx context.Context) error { return s.once(ctx, fn) })
}

// again repeats fn if it fails for a reason that passes. fn may run twice.
func again(ctx context.Context, fn func() error) error { return againWhile(ctx, repeatable, fn) }

func againWhile(ctx context.Context, worthIt func(error) bool, fn func() error) error {
	return againUntil(ctx, time.Now().Add(tryWithin), worthIt, fn)
}

func againUntil(ctx context.Context, until time.Time, worthIt func(error) bool, fn func() error) error {
	waits := storekit.NewWaits(firstPause, lastPause)
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || !worthIt(err) {
			return err
		}
		// On an overloaded server, one try may take longer than all tries should. Work that another
		// process interrupted gets a second try even then.
		last := attempt > 1 || !errors.Is(err, errContended)
		if last && time.Now().After(until) {
			return fmt.Errorf("tried %d times: %w", attempt, err)
		}
		if stop := waits.Wait(ctx); stop != nil {
			return fmt.Errorf("%w (%w)", stop, err)
		}
	}
}

// ownTransaction returns the options of the store's own transactions, which override the
// client's.
func ownTransaction() *options.TransactionOptionsBuilder {
	return options.Transaction().SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary())
}

// once runs fn in a transaction. The driver's WithTransaction would repeat for two minutes, even
// after ctx has ended, and its commit would ignore the end of ctx.
func (s *Store) once(ctx context.Context, fn func(ctx context.Context) error) error {
	session, err := s.client.StartSession()
	if err != nil {
		return err
	}
	defer end(ctx, session)
	if err = session.StartTransaction(ownTransaction()); err != nil {
		return err
	}
	if err := fn(driver.NewSessionContext(ctx, session)); err != nil {
		if unanswered(ctx, err) {
			s.supersede(ctx, session)
		} else {
			abort(ctx, session)
		}
		return err
	}
	if !session.TransactionRunning() {
		return fmt.Errorf("%w: the function has committed or aborted it: leave that to the store", outmill.ErrInvalidTx)
	}
	return commit(ctx, session)
}

// end ends the session, and aborts its transaction if that is still running, as after a panic.
func end(ctx context.Context, session *driver.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	session.EndSession(ctx)
}

func abort(ctx context.Context, session *driver.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	_ = session.AbortTransaction(ctx)
}

// unanswered reports that the caller may not have waited for the answer to the last statement.
func unanswered(ctx context.Context, err error) bool {
	return ctx.Err() != nil || driver.IsNetworkError(err) || mongoerr.IsTimeout(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// supersede aborts a transaction whose last statement has no answer yet. The abort uses another
// connection, so the server may get it before the statement. If that is the first statement, the
// server finds nothing to abort, begins the transaction afterwards, and keeps it, with its locks,
// for a minute. So the session begins another transaction, which ends the earlier one and makes
// the server refuse what is late of it.
func (s *Store) supersede(ctx context.Context, session *driver.Session) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	if session.TransactionRunning() {
		_ = session.AbortTransaction(own)
	}
	if session.StartTransaction(ownTransaction()) != nil {
		return
	}
	_ = s.meta.FindOne(driver.NewSessionContext(own, session), where("_id", metaID), options.FindOne().SetProjection(ascending("_id"))).Err()
	_ = session.AbortTransaction(own)
}

// commit repeats the request while the result of the commit is unknown, and returns
// storekit.ErrCommitInDoubt if it stays so. A commit that is cut off
// would leave the transaction open on the server, with its locks, for a minute. So if ctx ends
// before the commit, the transaction is aborted; if ctx ends during the commit, the commit gets
// some more time.
func commit(ctx context.Context, session *driver.Session) error {
	if err := ctx.Err(); err != nil {
		abort(ctx, session)
		return err
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), tryWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(abortWithin, cancel) })()
	crash.At(crash.BeforeCommit)
	defer crash.At(crash.AfterCommit)
	for {
		err := session.CommitTransaction(own)
		switch {
		case err == nil:
			return nil
		case mongoerr.CommitUnknown(err) && own.Err() == nil && storekit.Pause(own, firstPause) == nil:
			continue
		case mongoerr.MayBeCommitted(err):
			return storekit.CommitInDoubt(err)
		}
		return err
	}
}
