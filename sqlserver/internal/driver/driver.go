package driver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"math"
	"sync"
	"sync/atomic"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Config says how a Driver uses a database.
type Config struct {
	// Name is that of the store, for errors.
	Name string
	// Schema is that of the tables, and Table begins the names of all tables, types, functions and indexes. Both are letters, digits and _.
	Schema, Table string
	// TxFromContext finds a transaction that WithTx has not put into a context; nil finds none.
	TxFromContext sqlkit.Adoption
	// Log gets a line when handlers wait for connections.
	Log *storekit.Log
	// End is called by Close: it closes the pool if the store opened it. nil leaves it to the user.
	End func() error
}

// Driver is a driver.DB on a SQL Server database. It is safe for concurrent use.
type Driver struct {
	db     *sql.DB
	config Config
	names  *names
	// inUse are the callers' transactions in which a call is running.
	inUse storekit.TxLocks
	// begun are the transactions of Transact, with what follows their commits.
	begun    sync.Map
	notifier storekit.Notifier
	// admission admits the transactions of handlers to the pool.
	admission storekit.Admission
	// suits says that the database was found to be one in which a statement sees one moment.
	suits atomic.Bool
}

var (
	_ driver.DB     = (*Driver)(nil)
	_ driver.Sharer = (*Driver)(nil)
)

// New returns a driver on a pool, which the caller closes. It does not connect.
func New(db *sql.DB, config Config) *Driver {
	return &Driver{db: db, config: config, names: &names{schema: config.Schema, table: config.Table}}
}

// DB returns the pool.
func (d *Driver) DB() *sql.DB { return d.db }

// SharesWith returns the pool. See driver.Sharer.
func (d *Driver) SharesWith() any { return d.db }

// Close ends what the driver has started.
func (d *Driver) Close() error {
	d.notifier.Close()
	if d.config.End == nil {
		return nil
	}
	return d.config.End()
}

// Limits are those of VARBINARY(MAX) and of NVARCHAR(MAX), which uses two bytes for a character.
func (d *Driver) Limits() storekit.RowLimits {
	return storekit.RowLimits{Row: math.MaxInt32, Metadata: math.MaxInt32 / 2, PayloadTimes: 1}
}

// hashOf is the id of a note or of an entry. SQL Server takes 900 bytes for the key of a clustered index, and ignores blanks at the
// end of a text that it compares.
func hashOf(parts ...string) (id [16]byte) {
	hash := sha256.New()
	for _, part := range parts {
		_, _ = hash.Write([]byte(part))
		_, _ = hash.Write([]byte{0})
	}
	copy(id[:], hash.Sum(nil))
	return id
}

// lockOf is the name of an application lock of these tables.
func (d *Driver) lockOf(parts ...string) string {
	id := hashOf(append([]string{d.config.Schema, d.config.Table}, parts...)...)
	return "outmill:" + hex.EncodeToString(id[:])
}

// readCommitted is set for each transaction, because a connection of a pool may still have the level of its last use.
var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// View runs fn without a transaction: each of its statements sees one moment of its own, and none keeps a lock.
func (d *Driver) View(ctx context.Context, _ driver.Begin, fn func(driver.Tx) error) error {
	return d.repeat(ctx, func() error {
		t := &tx{d: d, on: d.db}
		if err := t.run(ctx, fn); err != nil {
			return judge.BeforeCommit(ctx, err)
		}
		t.Committed()
		return nil
	})
}

// Update runs fn in a transaction. All commits are durable.
func (d *Driver) Update(ctx context.Context, _ driver.Begin, fn func(driver.Tx) error) error {
	return d.repeat(ctx, func() error {
		t := &tx{d: d, locks: true}
		err := d.in(ctx, func(own *sql.Tx) error {
			t.on = own
			return t.run(ctx, fn)
		})
		if err == nil {
			t.Committed()
		}
		return err
	})
}

// repeat runs once until it succeeds, or fails for a reason that lasts. Where something of the schema is missing, the error says why.
func (d *Driver) repeat(ctx context.Context, once func() error) error {
	err := storekit.Repeat(ctx, judge.Passes, once)
	return d.on(d.db).ofSchema(ctx, err)
}

// run reads the state, and runs fn.
func (t *tx) run(ctx context.Context, fn func(driver.Tx) error) error {
	if err := t.readState(ctx); err != nil {
		return err
	}
	return fn(t)
}

// in runs fn in a transaction, and commits the transaction if fn returns nil. If the commit is in doubt, the error says so, and nobody
// repeats the transaction.
func (d *Driver) in(ctx context.Context, fn func(own *sql.Tx) error) error {
	own, err := d.db.BeginTx(ctx, readCommitted)
	if err != nil {
		return err
	}
	defer func() { _ = own.Rollback() }()
	return judge.Run(ctx, func() error { return fn(own) }, func() error {
		crash.At(crash.BeforeCommit)
		defer crash.At(crash.AfterCommit)
		return ended(own.Commit())
	})
}

// Read is Tx.Load without a transaction around it.
func (d *Driver) Read(ctx context.Context, rows []driver.Row, want driver.Want) (found []driver.Content, err error) {
	err = d.repeat(ctx, func() error {
		t := &tx{d: d, on: d.db}
		found, err = t.Load(ctx, rows, want)
		return judge.BeforeCommit(ctx, err)
	})
	return found, err
}

// idText is an id in a list: hexadecimal digits, which the statements convert.
func idText[ID ~[16]byte](id ID) string {
	bytes := [16]byte(id)
	return hex.EncodeToString(bytes[:])
}

// idsOf is a list of an id of each item.
func idsOf[T any, ID ~[16]byte](items []T, of func(*T) ID) string {
	list := make([]string, len(items))
	for i := range items {
		list[i] = idText(of(&items[i]))
	}
	return jsonOf(list)
}

func rowID(r *driver.Row) outmill.WorkItemID { return r.ID }
