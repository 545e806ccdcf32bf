package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
)

// Labels by which a server tells what to do about an error: "Transactions" in
// MongoDB's specifications of drivers.
const (
	labelTransient = "TransientTransactionError"
	labelUnknown   = "UnknownTransactionCommitResult"
)

// Codes of MongoDB's errors: its error_codes.yml.
const (
	codeWriteConflict     = 112
	codeNoSuchTransaction = 251
	codeOptionsConflict   = 85
	codeKeySpecsConflict  = 86
	codeNamespaceExists   = 48
	codeIllegalOperation  = 20
	codeUnauthorized      = 13
	codeMaxTimeExpired    = 50
	// codeNoChangeStreams is that of a server that is no replica set.
	codeNoChangeStreams = 40573
)

// explain names the operation, and turns what the driver says into what the
// contract says.
func (s *Store) explain(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	err = s.life.Explain(err)
	return fmt.Errorf("outmill/mongo: %s %s: %w", s.config.Name, operation, err)
}

// ended marks the error of an operation in a caller's transaction that is
// already over.
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

// interruptions are the codes of a server that stops being the primary, or shuts
// down, in the middle of a command.
var interruptions = []int{10107, 13435, 189, 11600, 11602, 91}

// interrupted tells that the primary or the connection to it was lost in the middle
// of a command: all, a part or nothing of the command may have been carried out.
// Where the commit of a transaction ends so, nobody knows about all of it: that is
// not one.
func interrupted(err error) bool {
	if hasLabel(err, labelUnknown) {
		return false
	}
	return driver.IsNetworkError(err) || slices.ContainsFunc(interruptions, func(code int) bool { return hasCode(err, code) })
}

// repeatable tells whether work is to be done again that may be done twice.
func repeatable(err error) bool { return passes(err) || interrupted(err) }

// passes tells whether work that is to take effect once has taken none, and may well
// succeed when it is done again.
func passes(err error) bool {
	return hasLabel(err, labelTransient) || hasCode(err, codeWriteConflict) || hasCode(err, codeNoSuchTransaction) ||
		errors.Is(err, errContended)
}
