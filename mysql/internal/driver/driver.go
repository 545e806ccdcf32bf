package driver

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Config says how a Driver uses a database.
type Config struct {
	// Name is that of the store, for errors, and Prefix begins the names of all tables.
	Name, Prefix string
	// Owned has Close close the pool.
	Owned bool
	// Leave follows the end of a pool that is owned; nil is nothing.
	Leave func()
	// TxFromContext finds a transaction that WithTx has not put into a context; nil finds none.
	TxFromContext sqlkit.Adoption
	// Ahead is how far the clock of the driver is ahead of the server's, which tests set; nil is not at all.
	Ahead func() time.Duration
}

// Driver is a driver.DB on a MySQL or MariaDB database. It is safe for concurrent use.
type Driver struct {
	db     *sql.DB
	config Config
	named  sync.Map
	last   atomic.Pointer[known]
	// inUse are the callers' transactions in which a call is running.
	inUse storekit.TxLocks
	// begun are the transactions of Transact, with what follows their commits.
	begun    sync.Map
	notifier storekit.Notifier
}

var (
	_ driver.DB        = (*Driver)(nil)
	_ driver.Notifying = (*Driver)(nil)
)

var placeholder = regexp.MustCompile(`\{p:([a-z_]+)\}`)

// New returns a driver on a pool of go-sql-driver/mysql. It does not connect.
func New(db *sql.DB, config Config) *Driver { return &Driver{db: db, config: config} }

// DB returns the pool.
func (d *Driver) DB() *sql.DB { return d.db }

// Close closes the pool if it is the driver's.
func (d *Driver) Close() error {
	d.notifier.Close()
	if !d.config.Owned {
		return nil
	}
	if d.config.Leave != nil {
		defer d.config.Leave()
	}
	return d.db.Close()
}

// Notifier has the hints of this process. MySQL has no LISTEN: polling finds the commits of others.
func (d *Driver) Notifier() *storekit.Notifier { return &d.notifier }

// TxLimit is 0, because MySQL has no limit.
func (d *Driver) TxLimit() time.Duration { return 0 }

// Limits are those of a packet: the largest max_allowed_packet is 1 GiB. A row that is larger than that of the server is refused before
// it is sent: see tx.send.
func (d *Driver) Limits() storekit.RowLimits {
	const most = 1<<30 - 1<<20
	return storekit.RowLimits{Row: most, Metadata: most / 2, PayloadTimes: 1}
}

// readCommitted is set for each transaction, because a connection may have another level, and a pooler may change the session in between.
var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// View runs fn in a transaction that only reads. Each of its calls sees one moment of its own.
func (d *Driver) View(ctx context.Context, _ driver.Begin, fn func(driver.Tx) error) error {
	return d.run(ctx, false, fn)
}

// Update runs fn in a transaction. All commits are as durable as the server is.
func (d *Driver) Update(ctx context.Context, _ driver.Begin, fn func(driver.Tx) error) error {
	return d.run(ctx, true, fn)
}

// run runs fn until it succeeds, or fails for a reason that lasts.
func (d *Driver) run(ctx context.Context, locks bool, fn func(driver.Tx) error) error {
	return storekit.Repeat(ctx, judge.Passes, func() error {
		t := &tx{d: d, locks: locks}
		err := d.in(ctx, func(own *sql.Tx) error {
			t.on = own
			if err := t.readState(ctx); err != nil {
				return err
			}
			return fn(t)
		})
		if err == nil {
			t.Committed()
		}
		return err
	})
}

// in runs fn in a transaction, and commits the transaction if fn returns nil. If the commit is in doubt, the error says so, and nobody
// repeats the transaction.
func (d *Driver) in(ctx context.Context, fn func(own *sql.Tx) error) error {
	own, leave, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return judge.Run(ctx, func() error { return fn(own) }, func() error {
		crash.At(crash.BeforeCommit)
		defer crash.At(crash.AfterCommit)
		return own.Commit()
	})
}

// begin returns a transaction, and what ends it. A session without autocommit may be in a transaction that some statement has begun
// before: the server then refuses to set the level, and begin ends that transaction first.
func (d *Driver) begin(ctx context.Context) (own *sql.Tx, leave func(), err error) {
	own, err = d.db.BeginTx(ctx, readCommitted)
	if err == nil {
		return own, func() { _ = own.Rollback() }, nil
	}
	if number(err) != errInTx {
		return nil, nil, err
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err = conn.ExecContext(ctx, "ROLLBACK"); err == nil {
		own, err = conn.BeginTx(ctx, readCommitted)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return own, func() { _, _ = own.Rollback(), conn.Close() }, nil
}

// Read is Tx.Load without a transaction around it.
func (d *Driver) Read(ctx context.Context, rows []driver.Row, want driver.Want) (found []driver.Content, err error) {
	err = storekit.Repeat(ctx, judge.Passes, func() error {
		return d.in(ctx, func(own *sql.Tx) (err error) {
			found, err = d.on(own).Load(ctx, rows, want)
			return err
		})
	})
	return found, err
}
