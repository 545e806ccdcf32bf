package mongo

import (
	"context"
	"errors"
	"fmt"

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
	if s.closed.Load() && !errors.Is(err, outmill.ErrClosed) {
		err = fmt.Errorf("%w: %w", outmill.ErrClosed, err)
	}
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

// passes tells whether the same work may well succeed when it is done again.
func passes(err error) bool {
	return hasLabel(err, labelTransient) || hasCode(err, codeWriteConflict) || hasCode(err, codeNoSuchTransaction) || errors.Is(err, errContended)
}
