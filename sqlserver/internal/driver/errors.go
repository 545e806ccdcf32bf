package driver

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Numbers of SQL Server's errors, from sys.messages.
const (
	errNoColumn     = 207
	errNoObject     = 208
	errNoType       = 2715
	errNoRight      = 229
	errDuplicate    = 2627
	errDuplicateKey = 2601
	errSetOptions   = 1934
	errDoomed       = 3930
	// errNoLock and errNoTransaction are thrown by the statements.
	errNoLock        = 50901
	errNoTransaction = 50902
)

// transient are the errors after which the same transaction may succeed: no locks left, a deadlock, a lock timeout, a conflict of
// snapshots, rows that moved during a read, a timeout for memory, a replica of an availability group that is not ready (or read-only,
// while the connection still goes to the former primary), and the errors by which Azure SQL says that it moves or limits a database.
var transient = []int32{
	1204, 1205, 1222, 3960, 601, errNoLock,
	976, 983, 3906, 8645, 8651,
	615, 926, 4060, 4221, 10928, 10929, 10936, 40143, 40197, 40501, 40540, 40613, 42108, 42109, 49918, 49919, 49920, 49983,
}

// number is the number of an error of SQL Server, 0 for other errors.
func number(err error) int32 {
	var e mssql.Error
	if !errors.As(err, &e) {
		return 0
	}
	// One error may cause others: a deadlock, for example, may be followed by its consequences.
	for _, one := range e.All {
		if slices.Contains(transient, one.Number) {
			return one.Number
		}
	}
	return e.Number
}

// judge knows what the errors of SQL Server mean for a transaction.
var judge = sqlkit.Judge{
	Lost: isConnection, MayBeCommitted: mayBeCommitted, Transient: func(err error) bool { return slices.Contains(transient, number(err)) },
}

// fatal is the class from which on an error of SQL Server ends the session.
const fatal = 20

// mayBeCommitted reports whether a COMMIT with this error may have taken effect. Where the server refuses it, it has rolled back,
// unless it ends the session.
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

// MayBeCommitted is mayBeCommitted. See storekit.CommitJudge.
func (*Driver) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }

// isConnection reports whether the connection has broken.
func isConnection(err error) bool {
	var e mssql.Error
	if errors.As(err, &e) {
		return e.Class >= fatal
	}
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, new(*net.OpError))
}

// ended marks the error of a statement in a transaction that has ended. go-mssqldb does not send a statement of a *sql.Tx that the
// server has rolled back; the statements themselves prove other transactions.
func ended(err error) error {
	var e mssql.Error
	switch {
	case err == nil || errors.Is(err, outmill.ErrInvalidTx):
		return err
	case number(err) == errNoTransaction:
		return storekit.TxGone(err)
	case number(err) == errDoomed:
		return fmt.Errorf("%w: an error in it has left it open only to be rolled back: %w", outmill.ErrInvalidTx, err)
	case errors.As(err, &e) && e.Number == 0 && strings.Contains(e.Message, "server does not have an active transaction"):
		return storekit.TxGone(err)
	}
	return sqlkit.TxEnded(err)
}

// Explain names the store and the operation, and converts the errors of SQL Server to those of the contract.
func (d *Driver) Explain(ctx context.Context, operation string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if errors.Is(err, outmill.ErrSchemaMissing) {
		err = fmt.Errorf("%w (or the login has no rights on it: see Store.Grants)", err)
	}
	switch number(err) {
	case errSetOptions:
		err = fmt.Errorf("%w (the session needs ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL and "+
			"QUOTED_IDENTIFIER ON, as the driver sets them)", err)
	case errNoRight:
		err = fmt.Errorf("%w (the rights that the store needs are in the documentation of package sqlserver)", err)
	}
	// go-mssqldb returns the error of the connection where the server is not there.
	away := func(error) bool { return false }
	return fmt.Errorf("outmill/sqlserver: %s %s: %w", d.config.Name, operation, storekit.MarkAway(ctx, ended(err), away))
}
