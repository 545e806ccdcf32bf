package driver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Config says how a Driver uses a database.
type Config struct {
	// Name is that of the store, for errors, and Prefix begins the names of all tables, indexes and views.
	Name, Prefix string
	// BusyTimeout is how long a call waits for another write transaction.
	BusyTimeout time.Duration
	// Owned has Close close the handle.
	Owned bool
	// Now is the clock, which tests set; nil is time.Now.
	Now func() time.Time
	// TxFromContext finds a transaction that WithTx has not put into a context; nil finds none.
	TxFromContext sqlkit.Adoption
}

// Driver is a driver.DB on a SQLite database. It is safe for concurrent use.
type Driver struct {
	db      *sql.DB
	config  Config
	writer  turnstile
	commits commits
	// inUse are the callers' transactions in which a call is running, and the driver while the transaction of a handler waits.
	inUse storekit.TxLocks
	// statements are the prepared ones by their templates, nil before they are prepared; more says that there are such.
	statements   sync.Map
	more, closed atomic.Bool
}

var (
	_ driver.DB     = (*Driver)(nil)
	_ driver.Sharer = (*Driver)(nil)
)

// New returns a driver on a handle of modernc.org/sqlite. It does not connect.
func New(db *sql.DB, config Config) *Driver {
	if config.Now == nil {
		config.Now = time.Now
	}
	d := &Driver{db: db, config: config}
	d.commits.open, d.commits.end = context.WithCancel(context.Background())
	return d
}

// Waiting is how many write transactions wait for their turn.
func (d *Driver) Waiting() int { return d.writer.waiting() }

// DB returns the handle.
func (d *Driver) DB() *sql.DB { return d.db }

// Ping connects. The switch to WAL may make it wait for other processes that are opening the same file.
func (d *Driver) Ping(ctx context.Context) error {
	return d.whileBusy(ctx, func() error { return d.db.PingContext(ctx) })
}

// Close forgets the prepared statements, and closes the handle if it is the driver's.
func (d *Driver) Close() error {
	d.closed.Store(true)
	d.commits.close()
	d.forget()
	if !d.config.Owned {
		return nil
	}
	if err := d.db.Close(); err != nil {
		return fmt.Errorf("outmill/sqlite: close %s: %w", d.config.Name, err)
	}
	return nil
}

// SharesWith returns the handle. See driver.Sharer.
func (d *Driver) SharesWith() any { return d.db }

// Limits are those of a row: modernc's SQLite takes up to 1e9 bytes, and the small columns need some.
func (d *Driver) Limits() storekit.RowLimits {
	const most = 1e9 - 1<<16
	return storekit.RowLimits{Row: most, Metadata: most, PayloadTimes: 1}
}

// View runs fn in a read transaction. It sees one state of the database, and does not wait for writers in WAL mode.
func (d *Driver) View(ctx context.Context, _ driver.Begin, fn func(driver.Tx) error) error {
	return d.run(ctx, readOnly, fn)
}

// Update runs fn in a write transaction, in turn with the other writers of this driver.
func (d *Driver) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return d.inTurn(ctx, begin.Urgent, func(ctx context.Context) error { return d.run(ctx, sqlLock, fn) })
}

// run runs fn in a transaction of the driver's own.
func (d *Driver) run(ctx context.Context, how string, fn func(driver.Tx) error) error {
	err := d.whileBusy(ctx, func() error {
		return d.once(ctx, how, func(t *tx) error {
			if err := t.readState(ctx); err != nil {
				return err
			}
			return fn(t)
		})
	})
	return d.ended(ctx, d.db, err)
}

// ended prepares the statements of a transaction. It returns the fault of the schema, if that may be the cause of an error: a
// schema of another program lacks a table or a column of this one.
func (d *Driver) ended(ctx context.Context, h sqlkit.Handle, err error) error {
	switch {
	case err == nil:
		d.prepare(ctx)
	case code(err) == sqlite3.SQLITE_ERROR:
		return cmp.Or(d.checkSchema(ctx, h), err)
	}
	return err
}

// inTurn runs fn while no other write transaction of the driver is running.
func (d *Driver) inTurn(ctx context.Context, urgent bool, fn func(ctx context.Context) error) error {
	leave, err := d.writer.enter(ctx, d.config.BusyTimeout, urgent)
	if err != nil {
		return d.orBusy(err)
	}
	defer leave()
	if urgent {
		longer, end := atLeast(ctx)
		defer end()
		ctx = longer
	}
	return fn(ctx)
}

func newWaits() *storekit.Waits { return storekit.NewWaits(time.Millisecond, 50*time.Millisecond) }

// whileBusy repeats fn until the database is not busy. SQLite's own waiting does not stop when a context ends.
func (d *Driver) whileBusy(ctx context.Context, fn func() error) error {
	return d.orBusy(storekit.RepeatFor(ctx, d.config.BusyTimeout, newWaits(), isBusy, fn))
}

func (d *Driver) orBusy(err error) error {
	if isBusy(err) || errors.Is(err, errHeld) {
		return fmt.Errorf("%w for %s: look for one that stays open too long, in this process or another (%w)", storekit.ErrBusy,
			d.config.BusyTimeout, err)
	}
	return err
}
