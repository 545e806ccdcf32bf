package driver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Explain names the store and the operation, and converts the errors of SQLite to those of the contract.
func (d *Driver) Explain(ctx context.Context, operation string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) && (code(err) == sqlite3.SQLITE_INTERRUPT || isBusy(err)) {
		err = cause
	}
	// SQLite has no codes for these two.
	if says(err, "no transaction is active") {
		err = storekit.TxGone(err)
	}
	if says(err, "no such table") {
		err = fmt.Errorf("%w (%w)", versionError(0), err)
	}
	return fmt.Errorf("outmill/sqlite: %s %s: %w", d.config.Name, operation, sqlkit.TxEnded(err))
}

// code returns SQLite's primary result code, 0 if err is not SQLite's.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool {
	return code(err) == sqlite3.SQLITE_BUSY || code(err) == sqlite3.SQLITE_LOCKED
}

// mayBeCommitted reports whether a COMMIT with this error may have taken effect. An error of the disk leaves open what
// has reached it; any other error of SQLite is a refusal.
func mayBeCommitted(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_IOERR || c == 0 && !errors.Is(err, sql.ErrTxDone)
}

func says(err error, text string) bool {
	return code(err) == sqlite3.SQLITE_ERROR && strings.Contains(err.Error(), text)
}
