package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Codes of PostgreSQL's errors: Appendix A of its manual.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codeStalePlan     = "0A000"
	codeNoTable       = "42P01"
	codeReadOnly      = "25006"
	codeNoSchema      = "3F000"
	codeNoFunction    = "42883"
	codeNoRight       = "42501"
	codeProgramLimit  = "54000"
	codeInternal      = "XX000" // also an allocation that is larger than one value may be
	codeDemand        = "OM001" // raised by the schema's function demand

	codeNoTransaction      = "25P01"
	codeFailedTransaction  = "25P02"
	codeIdleInTransaction  = "25P03"
	codeTransactionTimeout = "25P04"
	codeAdminShutdown      = "57P01"
	codeCrashShutdown      = "57P02"
	codeStarting           = "57P03"
	codeTooManyConnections = "53300"
	codeUnknownCommit      = "40003"

	classConnection = "08"
	classShutdown   = "57P"
)

// explain names the operation, and converts the driver's errors to those of the contract.
func (s *Store) explain(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	err = s.life.Explain(err)
	switch code(err) {
	case codeNoTable, codeNoSchema:
		if !errors.Is(err, outmill.ErrSchemaMissing) {
			err = fmt.Errorf("%w (%w)", storekit.SchemaVersion{}.Check(schemaVersion), err)
		}
	case codeReadOnly:
		err = conns.ReadOnly(err)
	case codeNoRight:
		err = fmt.Errorf("%w (the rights that the store needs are in the documentation of package postgres)", err)
	}
	return fmt.Errorf("outmill/postgres: %s %s: %w", s.config.Name, operation, storekit.MarkAway(ctx, ended(err), isAway))
}

// isAway reports whether the server says that it takes no connection, or ends this one.
func isAway(err error) bool {
	switch code(err) {
	case codeAdminShutdown, codeCrashShutdown, codeStarting, codeTooManyConnections:
		return true
	}
	return false
}

// ended marks the error of a statement in a transaction that has ended, or that can only be rolled
// back.
func ended(err error) error {
	switch {
	case errors.Is(err, outmill.ErrInvalidTx):
		return err
	case errors.Is(err, pgx.ErrTxClosed):
		return fmt.Errorf("%w: it was committed or rolled back before: %w", outmill.ErrInvalidTx, err)
	case code(err) == codeFailedTransaction:
		return fmt.Errorf("%w: a statement in it has failed before: roll it back, at least to a savepoint (%w)", outmill.ErrInvalidTx, err)
	}
	return sqlkit.TxEnded(err)
}

// sqlState is implemented by the errors of both pgx and lib/pq.
type sqlState interface{ SQLState() string }

// code returns PostgreSQL's code of the error, "" if err is not PostgreSQL's.
func code(err error) string {
	var e sqlState
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// passes reports whether the same transaction may succeed if it is run again.
func passes(err error) bool {
	if errors.Is(err, errRoutesChanged) {
		return true
	}
	switch code(err) {
	case codeSerialization, codeDeadlock, codeLockTimeout:
		return true
	case codeStalePlan:
		var e *pgconn.PgError
		// The code is the same for everything that is not supported, and the message may be in
		// another language, so the routine decides.
		return errors.As(err, &e) && e.Routine == "RevalidateCachedQuery"
	}
	return false
}

// mayBeCommitted reports whether a COMMIT with this error may have taken effect. Where the server refuses
// it, it has rolled back, unless it ends the session, which may also happen after the commit.
func mayBeCommitted(err error) bool {
	switch found := code(err); {
	case found == codeUnknownCommit, strings.HasPrefix(found, classConnection), strings.HasPrefix(found, classShutdown):
		return true
	case found != "", errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, outmill.ErrInvalidTx):
		return false
	}
	return !pgconn.SafeToRetry(err)
}

// committed returns the error of a COMMIT, as a doubt where it is one.
func committed(err error) error {
	if err == nil || !mayBeCommitted(err) {
		return err
	}
	return storekit.CommitInDoubt(err)
}

func isIdentifier(name string) bool {
	return name != "" && len(name) <= maxIdentifier && utf8.ValidString(name) && !strings.Contains(name, "\x00")
}
