package driver

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// The codes of PostgreSQL that the driver knows.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codeStalePlan     = "0A000"
	codeUnique        = "23505"
	codeNoTable       = "42P01"
	codeReadOnly      = "25006"
	codeNoSchema      = "3F000"
	codeNoFunction    = "42883"
	codeNoColumn      = "42703"
	codeNoRight       = "42501"
	codeProgramLimit  = "54000"
	codeInternal      = "XX000"
	codeLost          = "OM001" // raised by the schema's function demand
	codeStale         = "OM003" // raised by log_known

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

// code returns PostgreSQL's code of the error, "" if err is not PostgreSQL's. The errors of pgx and lib/pq have the method.
func code(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// Explain names the store and the operation, and converts the errors of PostgreSQL to those of the contract.
func (d *Driver) Explain(ctx context.Context, operation string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	switch code(err) {
	case codeNoTable, codeNoSchema, codeNoColumn:
		err = d.explainTables(ctx, err)
	case codeReadOnly:
		err = conns.ReadOnly(err)
	case codeNoRight:
		err = fmt.Errorf("%w (the rights that the store needs are in the documentation of package postgres)", err)
	}
	return fmt.Errorf("outmill/postgres: %s %s: %w", d.config.Name, operation, storekit.MarkAway(ctx, ended(err), isAway))
}

// patience is how long an error waits for its explanation.
const patience = 2 * time.Second

// explainTables says of a statement that has not found a table or column whether the schema is missing or another program's.
func (d *Driver) explainTables(ctx context.Context, err error) error {
	if errors.Is(err, outmill.ErrSchemaMissing) || errors.Is(err, outmill.ErrSchemaForeign) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, foreign := d.readVersion(ctx); errors.Is(foreign, outmill.ErrSchemaForeign) {
		return fmt.Errorf("%w (%w)", foreign, err)
	}
	if code(err) == codeNoColumn {
		return err
	}
	return fmt.Errorf("%w (%w)", storekit.SchemaVersion{}.Check(schemaVersion), err)
}

// isAway reports whether the server says that it takes no connection, or ends this one.
func isAway(err error) bool {
	switch code(err) {
	case codeAdminShutdown, codeCrashShutdown, codeStarting, codeTooManyConnections:
		return true
	}
	return false
}

// ended marks the error of a statement in a transaction that has ended, or that can only be rolled back.
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

// passes reports whether the same transaction may succeed if it runs again.
func passes(err error) bool {
	if errors.Is(err, errConnectionLost) || errors.Is(err, driver.ErrBusy) || stale(err) {
		return true
	}
	switch code(err) {
	case codeSerialization, codeDeadlock, codeLockTimeout, codeLost:
		return true
	case codeStalePlan:
		var e *pgconn.PgError
		// The code is the same for everything that is not supported, and the message may be in another language, so the
		// routine decides.
		return errors.As(err, &e) && e.Routine == "RevalidateCachedQuery"
	}
	return false
}

// mayBeCommitted reports whether a COMMIT with this error may have taken effect. Where the server refuses it, it has
// rolled back, unless it ends the session, which may also happen after the commit.
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

// MayBeCommitted is mayBeCommitted. See storekit.CommitJudge.
func (*Driver) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }

// isConnection reports whether the error is one of the connection, or one after which the server closes it.
func isConnection(err error) bool {
	switch code(err) {
	case codeAdminShutdown, codeCrashShutdown, codeIdleInTransaction, codeTransactionTimeout:
		return true
	}
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, new(*net.OpError))
}
