package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Numbers of SQL Server's errors, from sys.messages.
const (
	errNoObject    = 208
	errNoProcedure = 2812
	errNoType      = 2715
	errNoRight     = 229
	errDuplicate   = 2627
	errLockTimeout = 1222
	errSetOptions  = 1934
	errDataMoved   = 601
	errDoomed      = 3930
)

// transient are the errors after which the same call may succeed: no locks left, a deadlock, a
// lock timeout, a conflict of snapshots, rows that moved during a read, a
// timeout for memory, a replica of an availability group that is not ready (or read-only, while
// the connection still goes to the former primary), and the errors by which Azure SQL says that
// it moves or limits a database
// (learn.microsoft.com/azure/azure-sql/database/troubleshoot-common-errors-issues).
var transient = []int32{
	1204, 1205, errLockTimeout, 3960, errDataMoved, errNoLock,
	976, 983, 3906, 8645, 8651,
	615, 926, 4060, 4221, 10928, 10929, 10936, 40143, 40197, 40501, 40540, 40613, 42108, 42109, 49918, 49919, 49920, 49983,
}

// errNoLock is the error of the procedures if they cannot get the lock of a line or of a dedup
// key.
const errNoLock = 50901

// errNoTransaction is the error of a procedure, or of onlyWithin, on a handle without an open
// transaction, on which the call would commit by itself.
const errNoTransaction = 50902

// never: the driver returns the error of the connection where the server is not there.
func never(error) bool { return false }

// explain adds the name of the operation, and turns errors of the driver into errors of the
// contract.
func (s *Store) explain(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	err = s.life.Explain(err)
	switch number(err) {
	case errNoObject, errNoProcedure, errNoType:
		if !errors.Is(err, outmill.ErrSchemaMissing) {
			err = fmt.Errorf("%w (%w)", schemaError(storekit.SchemaVersion{}), err)
		}
	case errNoTransaction:
		err = fmt.Errorf("%w: it has not begun, or has ended: %w", outmill.ErrInvalidTx, err)
	case errDoomed:
		err = fmt.Errorf("%w: an error in it has left it open only to be rolled back: %w", outmill.ErrInvalidTx, err)
	case errSetOptions:
		err = fmt.Errorf("%w (the session needs ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL and "+
			"QUOTED_IDENTIFIER ON, as the driver sets them)", err)
	case errNoRight:
		err = fmt.Errorf("%w (the rights that the store needs are in the documentation of package sqlserver)", err)
	}
	return fmt.Errorf("outmill/sqlserver: %s %s: %w", s.config.Name, operation, storekit.MarkAway(ctx, sqlkit.TxEnded(err), never))
}

// ended marks the error of a statement in a caller's transaction that the server has rolled back
// after an earlier error. The driver does not send such a statement, so it does not commit by
// itself.
func ended(err error) error {
	var e mssql.Error
	if errors.As(err, &e) && e.Number == 0 && strings.Contains(e.Message, "server does not have an active transaction") {
		return fmt.Errorf("%w: the server has rolled it back after an earlier error: %w", outmill.ErrInvalidTx, err)
	}
	return err
}

// number is the number of an error of SQL Server, 0 for other errors.
func number(err error) int32 {
	var e mssql.Error
	if !errors.As(err, &e) {
		return 0
	}
	// One message may cause others: a deadlock, for example, may be followed by its consequences.
	for _, one := range e.All {
		if slices.Contains(transient, one.Number) {
			return one.Number
		}
	}
	return e.Number
}

// fatal is the class from which on an error of SQL Server ends the session.
const fatal = 20

// mayBeCommitted reports whether a COMMIT with this error may have taken effect. Where the server
// refuses it, it has rolled back, unless it ends the session.
func mayBeCommitted(err error) bool {
	var refused mssql.Error
	switch {
	case errors.Is(err, outmill.ErrInvalidTx), errors.Is(err, sql.ErrTxDone):
		return false
	case errors.As(err, &refused):
		return refused.Class >= fatal
	}
	return true
}

// passes reports whether the same transaction may succeed if it is repeated.
func passes(err error) bool {
	if errors.As(err, new(commitError)) {
		return false
	}
	return errors.Is(err, errRoutesChanged) || slices.Contains(transient, number(err))
}
