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

	"github.com/go-sql-driver/mysql"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Numbers of the server's errors.
const (
	errDuplicate     = 1062
	errSyntax        = 1064
	errNoTable       = 1146
	errNoColumn      = 1054
	errNoSavepoint   = 1305
	errLockWait      = 1205
	errDeadlock      = 1213
	errChanged       = 1020 // a row has changed since the snapshot of the transaction, under innodb_snapshot_isolation
	errNoWait        = 3572
	errNoRight       = 1142
	errNoRightDB     = 1044
	errNoRightColumn = 1143
	errNoProcess     = 1227
	errReadOnly      = 1290
	errReadOnlyTx    = 1836
	errShutdown      = 1053
	errKilled        = 1927
	errTooManyConns  = 1040
	errPacket        = 1153
	errNoDefault     = 1364
	errInTx          = 1568
)

// transient are the errors after which the same transaction may succeed: a deadlock, a lock that was not to be had, a conflict of
// snapshots, a definition of a table that changed, and a server that stops, or is no primary any more.
var transient = []uint16{errDeadlock, errLockWait, errNoWait, errChanged, 1412, 1615, errShutdown, errKilled, errReadOnly, errReadOnlyTx}

// number is the number of an error of the server, 0 for other errors.
func number(err error) uint16 {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return 0
	}
	return e.Number
}

// isLocked reports whether a row was locked.
func isLocked(err error) bool { return number(err) == errLockWait || number(err) == errNoWait }

// judge knows what the errors of the server mean for a transaction.
var judge = sqlkit.Judge{
	Lost: isConnection, MayBeCommitted: mayBeCommitted, Transient: func(err error) bool { return slices.Contains(transient, number(err)) },
}

// mayBeCommitted reports whether a COMMIT with this error may have taken effect. Where the server refuses it, it has rolled back, unless it
// ends the session.
func mayBeCommitted(err error) bool {
	switch n := number(err); {
	case errors.Is(err, outmill.ErrInvalidTx), errors.Is(err, sql.ErrTxDone):
		return false
	case n != 0:
		return n == errShutdown || n == errKilled
	}
	return true
}

// MayBeCommitted is mayBeCommitted. See storekit.CommitJudge.
func (*Driver) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }

// isConnection reports whether the connection has broken.
func isConnection(err error) bool {
	if n := number(err); n != 0 {
		return n == errShutdown || n == errKilled
	}
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*net.OpError))
}

// Explain names the store and the operation, and converts the errors of the server to those of the contract.
func (d *Driver) Explain(ctx context.Context, operation string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	switch number(err) {
	case errNoTable, errNoColumn:
		if !errors.Is(err, outmill.ErrSchemaMissing) {
			err = fmt.Errorf("%w (%w)", storekit.SchemaVersion{}.Check(schemaVersion), err)
		}
	case errNoRight, errNoRightDB:
		err = fmt.Errorf("%w (the rights that the store needs are in the documentation of package mysql)", err)
	case errPacket:
		err = fmt.Errorf("%w (%w)", err, errTooLarge)
	}
	away := func(err error) bool {
		return isConnection(err) || slices.Contains([]uint16{errReadOnly, errReadOnlyTx, errTooManyConns}, number(err))
	}
	return fmt.Errorf("outmill/mysql: %s %s: %w", d.config.Name, operation, storekit.MarkAway(ctx, sqlkit.TxEnded(err), away))
}
