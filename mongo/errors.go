package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Labels by which a server says whether work can be retried: see "Transactions" in MongoDB's
// specifications of drivers.
const (
	labelTransient = "TransientTransactionError"
	labelUnknown   = "UnknownTransactionCommitResult"
	labelRetryable = "RetryableWriteError"
)

// Codes of MongoDB's errors, from its error_codes.yml.
const (
	codeWriteConflict     = 112
	codeNoSuchTransaction = 251
	codeOptionsConflict   = 85
	codeKeySpecsConflict  = 86
	codeNamespaceExists   = 48
	codeIllegalOperation  = 20
	codeUnauthorized      = 13
	codeInvalidOptions    = 72
	codeMaxTimeExpired    = 50
	codeInterrupted       = 11601
	// codeNoChangeStreams is the error of a server that is not a member of a replica set.
	codeNoChangeStreams = 40573
)

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
	return interrupted(err) || isTimeout(err) || errors.As(err, new(topology.ServerSelectionError))
}

// isTimeout reports whether the server or the driver had too little time. The driver does not say so of the
// write concern of a bulk write.
func isTimeout(err error) bool { return driver.IsTimeout(err) || hasCode(err, codeMaxTimeExpired) }

// ended marks an error as outmill.ErrInvalidTx if the caller's transaction had ended before.
func ended(err error) error {
	if hasCode(err, codeNoSuchTransaction) && !errors.Is(err, outmill.ErrInvalidTx) {
		return fmt.Errorf("%w: it was committed or aborted before: %w", outmill.ErrInvalidTx, err)
	}
	return err
}

func hasCode(err error, code int) bool {
	var e driver.ServerError
	return errors.As(err, &e) && e.HasErrorCode(code)
}

func hasLabel(err error, label string) bool {
	var e driver.LabeledError
	return errors.As(err, &e) && e.HasErrorLabel(label)
}

// interruptions are the codes of a server that steps down as the primary, or shuts down, during a
// command.
var interruptions = []int{10107, 13435, 189, 11600, 11602, 91}

// interrupted reports that the primary, or the connection to it, was lost during a command: the
// server may have carried out all, a part or none of it. It is false for the commit of a
// transaction: the result of such a commit is unknown as a whole.
func interrupted(err error) bool {
	if hasLabel(err, labelUnknown) {
		return false
	}
	return driver.IsNetworkError(err) || slices.ContainsFunc(interruptions, func(code int) bool { return hasCode(err, code) })
}

// mayHaveWritten reports that the server may have carried out the command, or may still carry it
// out. It is false if the server refused the command.
func mayHaveWritten(ctx context.Context, err error) bool {
	var write driver.WriteException
	var several driver.BulkWriteException
	unconfirmed := errors.As(err, &write) && write.WriteConcernError != nil || errors.As(err, &several) && several.WriteConcernError != nil
	return unconfirmed || unanswered(ctx, err) || interrupted(err) || hasCode(err, codeInterrupted) || hasLabel(err, labelRetryable)
}

// repeatable reports whether work that may run twice is to be repeated.
func repeatable(err error) bool { return passes(err) || interrupted(err) }

// isTransient reports whether the server says that the whole transaction may be run again.
func isTransient(err error) bool { return hasLabel(err, labelTransient) }

// mayBeCommitted reports whether a COMMIT with this error may have taken effect: the server has neither
// refused it nor confirmed it.
func mayBeCommitted(err error) bool {
	var refused driver.ServerError
	switch {
	case hasLabel(err, labelUnknown), driver.IsNetworkError(err), isTimeout(err):
		return true
	case errors.Is(err, outmill.ErrInvalidTx):
		return false
	}
	return !errors.As(err, &refused)
}

// passes reports whether work that must take effect only once had no effect, and may succeed if
// it is repeated.
func passes(err error) bool {
	return isTransient(err) || hasCode(err, codeWriteConflict) || hasCode(err, codeNoSuchTransaction) ||
		errors.Is(err, errContended)
}

// violates reports whether err says that a document has the keys of another one in a unique index
// that begins with the field. An index of the user's own is another one.
func violates(err error, field string) bool {
	if !driver.IsDuplicateKeyError(err) {
		return false
	}
	var command driver.CommandError
	if !errors.As(err, &command) {
		return false
	}
	var violated struct {
		Keys bson.D `bson:"keyPattern"`
	}
	if bson.Unmarshal(command.Raw, &violated) != nil || len(violated.Keys) == 0 {
		return strings.Contains(err.Error(), " dup key: { "+field+": ")
	}
	return len(violated.Keys) == 1 && violated.Keys[0].Key == field
}

// lacksHint reports whether a command named an index that does not exist.
func lacksHint(err error) bool {
	var command driver.CommandError
	return errors.As(err, &command) && strings.Contains(command.Message, "hint provided does not correspond to an existing index")
}
