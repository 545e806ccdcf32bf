package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

// codeInterrupted is from MongoDB's error_codes.yml.
const codeInterrupted = 11601

// explain adds the name of the operation, and turns errors of the driver into errors of the
// contract.
func (s *Store) explain(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	err = storekit.MarkAway(ctx, s.life.Explain(err), isAway)
	return fmt.Errorf("outmill/mongo: %s %s: %w", s.config.Name, operation, err)
}

// isAway reports whether there is no server that can do the work.
func isAway(err error) bool {
	return mongoerr.Interrupted(err) || mongoerr.IsTimeout(err) || errors.As(err, new(topology.ServerSelectionError))
}

// ended marks an error as outmill.ErrInvalidTx if the caller's transaction had ended before.
func ended(err error) error {
	if mongoerr.HasCode(err, mongoerr.CodeNoSuchTransaction) && !errors.Is(err, outmill.ErrInvalidTx) {
		return fmt.Errorf("%w: it was committed or aborted before: %w", outmill.ErrInvalidTx, err)
	}
	return err
}

// mayHaveWritten reports that the server may have carried out the command, or may still carry it
// out. It is false if the server refused the command.
func mayHaveWritten(ctx context.Context, err error) bool {
	return mongoerr.Unconfirmed(err) || unanswered(ctx, err) || mongoerr.Interrupted(err) || mongoerr.HasCode(err, codeInterrupted) ||
		mongoerr.HasLabel(err, mongoerr.LabelRetryable)
}

// repeatable reports whether work that may run twice is to be repeated.
func repeatable(err error) bool { return passes(err) || mongoerr.Interrupted(err) }

// isTransient reports whether the server says that the whole transaction may be run again.
func isTransient(err error) bool { return mongoerr.Transient(err) }

// passes reports whether work that must take effect only once had no effect, and may succeed if
// it is repeated.
func passes(err error) bool {
	return isTransient(err) || mongoerr.HasCode(err, mongoerr.CodeWriteConflict) || mongoerr.HasCode(err, mongoerr.CodeNoSuchTransaction) ||
		errors.Is(err, errContended)
}
