package driver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Config says how a Driver uses a database.
type Config struct {
	// Name is that of the store, for errors.
	Name string
	// Schema is that of the tables, and Prefix begins the names of all tables, indexes and functions.
	Schema, Prefix string
	// Listen has the settings of the connection on which the driver hears of the commits of others, and ListenURL the connection string
	// that they come from, if not from the pool. nil hears nothing, and notifies nobody.
	Listen    conns.Settings
	ListenURL string
	// NotifyInterval is the least time between two notifications of this driver.
	NotifyInterval time.Duration
	// Logger gets a line when the connection that listens breaks, and when handlers wait for connections; nil logs nothing.
	Logger *storekit.Log
	// CloseWithin is how long Close waits for calls that have a connection of a pool that the store opened. 0 is storekit.CloseWithin.
	CloseWithin time.Duration
	// Upkeep says when the upkeep of the log does what.
	Upkeep segments.Config
	// TxFromContext finds a transaction that WithTx has not put into a context; nil finds none.
	TxFromContext sqlkit.Adoption
	// DB begins the transactions of Transact, which are a *sql.Tx then; nil is the pool.
	DB *sql.DB
	// IdleInTransaction is after how long a silence of its client the server ends a transaction of Transact. 0 is until the end of its
	// context, or 15 min; a negative one sets no limit.
	IdleInTransaction time.Duration
	// UpgradeWithin is how long Ensure tries to get the locks of a version. 0 is an hour.
	UpgradeWithin time.Duration
}

// Driver is a driver.DB on a PostgreSQL database. It is safe for concurrent use.
type Driver struct {
	conns  *conns.Conns
	config Config
	names  *names
	// inUse are the callers' transactions in which a call is running.
	inUse   storekit.TxLocks
	hearing hearing
	// last is the state that the last transaction has read.
	last atomic.Pointer[driver.State]
	log  driverLog
	// copies says which appends to the log copy: isLarge, but for tests.
	copies func(rows []driver.NewRow) bool
	// recordsOnly has every append write records. Tests set it, so that each sentence of the suites meets records, too.
	recordsOnly bool
}

var (
	_ driver.DB         = (*Driver)(nil)
	_ driver.Maintainer = (*Driver)(nil)
	_ driver.Sharer     = (*Driver)(nil)
)

// New returns a driver on connections. It does not connect.
func New(on *conns.Conns, config Config) *Driver {
	d := &Driver{conns: on, config: config, names: &names{schema: config.Schema, prefix: config.Prefix}, copies: isLarge}
	if d.config.Logger == nil {
		d.config.Logger = storekit.NewLog(nil, config.Name, nil)
	}
	d.newHearing()
	d.log.keeper = segments.New(upkeepLog{
		names: d.names, begin: d.beginUpkeep, change: d.changeUpkeep, read: d.readUpkeep, log: d.config.Logger,
	}, config.Upkeep)
	return d
}

// Close ends what the driver has started, and closes a pool that the store opened.
func (d *Driver) Close() error {
	d.hearing.Close()
	d.hearing.notifier.Close()
	return d.conns.Close(d.config.Name, cmp.Or(d.config.CloseWithin, storekit.CloseWithin))
}

// SharesWith is the pool. See driver.Sharer.
func (d *Driver) SharesWith() any { return d.conns.Pool() }

// Impatient sets Config.CloseWithin, and after which silence the connection that listens is asked whether it still works. It is for tests.
func (d *Driver) Impatient(closeWithin, heartbeat time.Duration) {
	d.config.CloseWithin = closeWithin
	d.hearing.BeatEvery(heartbeat)
}

// ToRecord moves a row of the log to the records. It is for tests.
func (d *Driver) ToRecord(ctx context.Context, id outmill.WorkItemID) error {
	return d.Update(ctx, driver.Begin{}, func(t driver.Tx) error {
		_, _, err := t.Lock(ctx, id)
		return err
	})
}

// TxLimit is 0: PostgreSQL has no limit unless transaction_timeout sets one.
func (d *Driver) TxLimit() time.Duration { return 0 }

// Limits are those of a row: PostgreSQL takes at most 1 GiB for a row in any form. In the text form, which pg_dump uses, a payload
// has twice its size.
func (d *Driver) Limits() storekit.RowLimits {
	return AppendLimits()
}

// View runs fn in a transaction that sees one moment and writes nothing.
func (d *Driver) View(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return d.repeat(ctx, func(failures) error { return d.run(ctx, sqlView, begin, fn, false, false) })
}

// Update runs fn in a transaction.
func (d *Driver) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	if begin.Inserts {
		if guessed, err := d.guess(ctx, begin, fn); guessed {
			return err
		}
	}
	return d.repeat(ctx, func(failed failures) error {
		return d.run(ctx, sqlBegin, begin, fn, failed.all == 0, failed.stale >= patientTries)
	})
}

// patientTries is how often a transaction begins again because the registrations have changed. Then it locks them, so that it ends however
// often others change them.
const patientTries = 3

// failures are how often a transaction has failed, and how often of these because the registrations had changed.
type failures struct{ all, stale int }

const (
	sqlBegin  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	sqlView   = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	sqlCommit = `COMMIT`
)

// repeat runs fn until it succeeds, or fails for a reason that lasts.
func (d *Driver) repeat(ctx context.Context, fn func(failures) error) error {
	var failed failures
	err := d.conns.Repeat(ctx, passes, func() error {
		err := fn(failed)
		failed.all++
		if stale(err) {
			failed.stale++
		}
		return err
	})
	if code(err) == codeNoTable || code(err) == codeNoSchema {
		return d.whyMissing(ctx, err)
	}
	return err
}

// run runs fn in a transaction. rides says that the commit may travel with the last write, and holds that the registrations may not change.
func (d *Driver) run(ctx context.Context, how string, begin driver.Begin, fn func(driver.Tx) error, rides, holds bool) error {
	if err := d.adapt(ctx, begin.Inserts); err != nil {
		return err
	}
	own, err := d.begin(ctx)
	if err != nil {
		return err
	}
	t := &tx{
		d: d, to: onPgx{own.conn}, own: own, locks: how == sqlBegin, rides: rides, holds: holds, inserts: begin.Inserts, log: d.newTxLog(),
	}
	defer func() { own.end(ctx, err) }()
	if err = t.runOwn(ctx, how, begin, fn); err != nil {
		if own.lost(ctx, err) {
			err = errors.Join(errConnectionLost, err)
		}
		return err
	}
	t.Committed()
	t.keepLeases()
	return nil
}

func (t *tx) runOwn(ctx context.Context, how string, begin driver.Begin, fn func(driver.Tx) error) error {
	t.addBegin(how)
	t.add("settings", []any{begin.Durable}, nil)
	t.addHold()
	t.addState()
	t.addFirst(begin)
	// The first read stays for the first call.
	first := t.begun
	if err := t.flush(ctx); err != nil {
		return err
	}
	if t.begun = first; !t.sameHistory() {
		t.begun = nil
	}
	if err := fn(t); err != nil || t.own.over {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.commit(ctx)
}

// addHold has changes of the registrations wait for the transaction.
func (t *tx) addHold() {
	if t.holds {
		t.add("share_routes", []any{t.d.names.lockOf("routes")}, nil)
	}
}

func (t *tx) addBegin(how string) {
	t.addStep(step{text: how, done: func(int) error {
		t.own.begun = true
		return nil
	}})
}

// commit sends the queued statements, and the COMMIT.
func (t *tx) commit(ctx context.Context) error {
	t.addStep(step{text: sqlCommit, done: func(int) error {
		t.own.over = true
		return nil
	}})
	return t.own.committing(func() error { return t.flush(ctx) })
}

// Read is Tx.Load in one statement without a transaction around it.
func (d *Driver) Read(ctx context.Context, rows []driver.Row, want driver.Want) (found []driver.Content, err error) {
	err = d.repeat(ctx, func(failures) error {
		own, err := d.begin(ctx)
		if err != nil {
			return err
		}
		defer func() { own.end(ctx, err) }()
		t := &tx{d: d, to: onPgx{own.conn}, log: d.newTxLog(), reads: true}
		// Without a transaction the settings hold for the statement that is sent with them.
		t.addStep(step{text: d.names.text("settings", false), args: []any{true}})
		found, err = t.Load(ctx, rows, want)
		return err
	})
	return found, err
}
