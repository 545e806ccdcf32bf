package next

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"math"
	"sync"
	"time"

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
	// Schema is that of the tables, and Prefix begins the names of all tables, types, functions and indexes. Both are letters, digits and _.
	Schema, Prefix string
	// TxFromContext finds a transaction that WithTx has not put into a context; nil finds none.
	TxFromContext sqlkit.Adoption
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
}

var _ driver.DB = (*Driver)(nil)

// New returns a driver on a pool, which the caller closes. It does not connect.
func New(db *sql.DB, config Config) *Driver {
	return &Driver{db: db, config: config, names: &names{schema: config.Schema, prefix: config.Prefix}}
}

// Close ends what the driver has started. The pool stays open.
func (d *Driver) Close() error {
	d.notifier.Close()
	return nil
}

// TxLimit is 0, because SQL Server has no limit.
func (d *Driver) TxLimit() time.Duration { return 0 }

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
	id := hashOf(append([]string{d.config.Schema, d.config.Prefix}, parts...)...)
	return "outmill:" + hex.EncodeToString(id[:])
}

// readCommitted is set for each transaction, because a connection of a pool may still have the level of its last use.
var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// View runs fn in a transaction that writes nothing. Each of its calls sees one moment of its own.
func (d *Driver) View(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return d.run(ctx, begin, false, fn)
}

// Update runs fn in a transaction. All commits are durable.
func (d *Driver) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return d.run(ctx, begin, true, fn)
}

// run runs fn until it succeeds, or fails for a reason that lasts.
func (d *Driver) run(ctx context.Context, _ driver.Begin, locks bool, fn func(driver.Tx) error) error {
	return storekit.Repeat(ctx, passes, func() error {
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

// errConnectionLost says that the connection was lost before the COMMIT was sent, so that nothing has been written.
var errConnectionLost = errors.New("the connection was lost before the commit")

// in runs fn in a transaction, and commits it if fn returns nil. An error that leaves the commit in doubt says so, and is not repeated.
func (d *Driver) in(ctx context.Context, fn func(own *sql.Tx) error) error {
	own, err := d.db.BeginTx(ctx, readCommitted)
	if err != nil {
		return err
	}
	defer func() { _ = own.Rollback() }()
	if err := fn(own); err != nil {
		if ctx.Err() == nil && isConnection(err) {
			err = errors.Join(errConnectionLost, err)
		}
		return err
	}
	// Commit does nothing then.
	if err := ctx.Err(); err != nil {
		return err
	}
	crash.At(crash.BeforeCommit)
	err = own.Commit()
	crash.At(crash.AfterCommit)
	if err == nil {
		return nil
	}
	if err = ended(err); mayBeCommitted(err) {
		err = storekit.CommitInDoubt(err)
	}
	return commitError{err}
}

// commitError is the error of a commit. Such a transaction is not repeated: the second run would not know the changes of the first.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

// Read is Tx.Load without a transaction around it.
func (d *Driver) Read(ctx context.Context, rows []driver.Row, want driver.Want) (found []driver.Content, err error) {
	err = storekit.Repeat(ctx, passes, func() error {
		t := &tx{d: d, on: d.db}
		found, err = t.Load(ctx, rows, want)
		return err
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
