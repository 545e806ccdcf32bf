package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

const (
	// abortWithin bounds the cleanup after a failure.
	abortWithin = 2 * time.Second
	commitPause = 2 * time.Millisecond
)

// errConflict has a transaction run again: others have changed what it has read.
var errConflict = errors.New("others have changed the same records since they were read")

func ownTransaction() *options.TransactionOptionsBuilder {
	return options.Transaction().SetReadConcern(readconcern.Snapshot()).
		SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary())
}

// alone returns ctx without a session.
func alone(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

// commit repeats the request for tryWithin while its result is unknown, and waits longer for the answer of a server that has much to
// write. A commit that is cut off would leave the transaction open on the server, with its locks, for a minute.
func commit(ctx context.Context, session *mongo.Session) error {
	began := time.Now()
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), txLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(abortWithin, cancel) })()
	crash.At(crash.BeforeCommit)
	defer crash.At(crash.AfterCommit)
	for {
		err := session.CommitTransaction(own)
		switch {
		case err == nil:
			return nil
		case mongoerr.CommitUnknown(err) && time.Since(began) < tryWithin && storekit.Pause(own, commitPause) == nil:
			continue
		case mongoerr.MayBeCommitted(err):
			return storekit.CommitInDoubt(err)
		}
		return err
	}
}

// endSession aborts what still runs. If the last statement has no answer, the server may get the abort before it; so the session
// then begins another transaction, which ends the one before and has the server refuse what is late of it.
func (d *Driver) endSession(ctx context.Context, session *mongo.Session, err error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	if session.TransactionRunning() {
		_ = session.AbortTransaction(own)
		if unanswered(ctx, err) && session.StartTransaction(ownTransaction()) == nil {
			_ = d.meta.FindOne(mongo.NewSessionContext(own, session), idIs(metaID)).Err()
			_ = session.AbortTransaction(own)
		}
	}
	session.EndSession(own)
}

func unanswered(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || mongo.IsNetworkError(err) || mongoerr.IsTimeout(err))
}

// passes reports whether a transaction that has failed may succeed if it runs again.
func passes(err error) bool {
	return !errors.Is(err, storekit.ErrCommitInDoubt) && (conflicts(err) || mongoerr.Interrupted(err))
}

func conflicts(err error) bool {
	return errors.Is(err, errConflict) || mongoerr.Transient(err) ||
		mongoerr.HasCode(err, mongoerr.CodeWriteConflict) ||
		mongoerr.HasCode(err, mongoerr.CodeNoSuchTransaction) && !errors.Is(err, outmill.ErrInvalidTx)
}

// MayBeCommitted reports whether a commit with this error may have taken effect. See storekit.CommitJudge.
func (d *Driver) MayBeCommitted(_ context.Context, err error) bool {
	return mongoerr.MayBeCommitted(err)
}

// Explain adds the operation to an error.
func (d *Driver) Explain(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	cause := storekit.Ended(ctx)
	if _, bounded := ctx.Deadline(); cause == nil && bounded && mongoerr.OutOfTime(err) {
		// The server ends a command before the deadline of ctx, so that its answer arrives in time.
		cause = context.DeadlineExceeded
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if cause == nil {
		err = storekit.MarkAway(ctx, err, func(err error) bool {
			return mongoerr.Interrupted(err) || mongoerr.IsTimeout(err) || errors.As(err, new(topology.ServerSelectionError))
		})
	}
	return fmt.Errorf("outmill/mongo: %s %s: %w", d.config.Name, operation, err)
}

var (
	_ storekit.CommitJudge = (*Driver)(nil)
)
