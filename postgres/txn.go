package postgres

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/postgres/internal/conns"
)

// step is one statement of a round trip.
type step struct {
	template string
	args     []any
	// row is called for each row of the result; nil if the rows are not read.
	row func(scan func(into ...any) error) error
	// bare says that the statement needs no safePath.
	bare bool
	// idles says that the statement does what idleSteps do.
	idles bool
	// count gets the number of rows that the statement changed or returned.
	count *int
}

// safely is the pool for single statements. It sends safePath with each, because without a
// transaction the setting holds only for their round trip.
type safely struct{ s *Store }

func (s *Store) safe() safely { return safely{s} }

func (p safely) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return safeRow{p.send(ctx, sql, args)}
}

func (p safely) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results := p.send(ctx, sql, args)
	_, err := results.Exec()
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = results.Exec()
	}
	return tag, closed(results, err)
}

func (p safely) send(ctx context.Context, sql string, args []any) pgx.BatchResults {
	batch := &pgx.Batch{}
	batch.Queue(safePath)
	batch.Queue(sql, args...)
	return p.s.conns.SendBatch(ctx, batch)
}

type safeRow struct{ results pgx.BatchResults }

func (r safeRow) Scan(into ...any) error {
	_, err := r.results.Exec()
	if err == nil {
		err = r.results.QueryRow().Scan(into...)
	}
	return closed(r.results, err)
}

// runner sends the steps in their order, in one round trip if it can.
type runner interface {
	run(ctx context.Context, steps ...step) error
	// copier returns nil if COPY is not available.
	copier() copier
}

const (
	sqlBegin  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	sqlCommit = `COMMIT`

	// safePath prevents the store from running other users' functions and operators: PostgreSQL
	// would call one in a schema of the search path that fits the arguments better than its
	// own. Tables are named with their schema.
	safePath = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)`

	// sqlSettings also makes the planner use the indexes, whatever statistics it has or lacks
	// (a plan that was cached while a table was empty stays for a while), and makes it plan a
	// statement once and not for each call. It also ends the transaction of a process that was
	// stopped in the middle of it, while it should send or while it should receive (if the
	// server's operating system supports that).
	sqlSettings = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), set_config('enable_seqscan', 'off', true),
		set_config('enable_bitmapscan', 'off', true),
	set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('lock_timeout', '10s', true),
	set_config('idle_in_transaction_session_timeout', '10s', true),
	CASE WHEN version() LIKE '%linux%' THEN set_config('tcp_user_timeout', '10s', true) END`

	// sqlRelaxed does not wait for the disk: see Config.DurableSettle.
	sqlRelaxed = sqlSettings + `, set_config('synchronous_commit', 'off', true)`
)

// sqlPatient is sqlSettings for a statement with large arguments. The server counts the
// transaction as idle until it has received all of them.
var sqlPatient = strings.Replace(sqlSettings, `'idle_in_transaction_session_timeout', '10s'`,
	`'idle_in_transaction_session_timeout', '10min'`, 1)

const (
	attempts   = 10
	firstPause = 2 * time.Millisecond
	lastPause  = 200 * time.Millisecond
	// rollbackWithin limits the time of a rollback after a failure.
	rollbackWithin = 2 * time.Second
)

// txn is a transaction that the store begins. Its BEGIN is sent with the first steps, and its
// COMMIT with the last ones.
type txn struct {
	s        *Store
	conn     *conns.Lent
	settings string
	begun    bool
	over     bool
}

// run sends the steps and stays in the transaction.
func (t *txn) run(ctx context.Context, steps ...step) error { return t.send(ctx, steps, false) }

func (t *txn) copier() copier { return t.conn }

// finish sends the steps and commits.
func (t *txn) finish(ctx context.Context, steps ...step) error { return t.send(ctx, steps, true) }

func (t *txn) send(ctx context.Context, steps []step, last bool) error {
	batch := &pgx.Batch{}
	before := 0
	if !t.begun {
		batch.Queue(sqlBegin)
		batch.Queue(t.settings)
		before, t.begun = 2, true
	}
	for _, s := range steps {
		batch.Queue(t.s.sql.text(s.template), s.args...)
	}
	if last {
		crash.At(crash.BeforeCommit)
		batch.Queue(sqlCommit)
	}
	results := t.conn.SendBatch(ctx, batch)
	if err := closed(results, read(results, before, steps, last)); err != nil {
		return err
	}
	if t.over = last; last {
		crash.At(crash.AfterCommit)
	}
	return nil
}

func read(results pgx.BatchResults, before int, steps []step, last bool) error {
	for range before {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	if err := readSteps(results, steps); err != nil {
		return err
	}
	if last {
		_, err := results.Exec()
		return err
	}
	return nil
}

func readSteps(results pgx.BatchResults, steps []step) error {
	for _, s := range steps {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		if err := s.read(rows); err != nil {
			return err
		}
	}
	return nil
}

// closed closes the results. If an error was read before, Close returns it again.
func closed(results pgx.BatchResults, read error) error {
	unread := results.Close()
	return cmp.Or(read, unread)
}

func (s step) read(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		if s.row == nil {
			continue
		}
		if err := s.row(rows.Scan); err != nil {
			return err
		}
	}
	rows.Close()
	if s.count != nil {
		*s.count = int(rows.CommandTag().RowsAffected())
	}
	return rows.Err()
}

// release returns the connection to the pool, after a rollback if the transaction is still
// open. why is the error of the transaction.
func (t *txn) release(ctx context.Context, why error) {
	defer t.s.conns.GiveBack(t.conn, why)
	if t.over || !t.begun || t.conn.PgConn().TxStatus() == 'I' || conns.IsReadOnly(why) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
	defer cancel()
	_, _ = t.conn.Exec(ctx, "ROLLBACK")
}

// write runs fn, which ends with t.finish, in a transaction of the store's own. It repeats fn
// if it fails for a temporary reason.
func (s *Store) write(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error {
	return s.explain(ctx, operation, s.try(ctx, s.relaxed, fn))
}

// writing is the type of write and durably.
type writing func(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error

// durably is write with a commit that waits for the disk, as the server is configured.
func (s *Store) durably(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error {
	return s.explain(ctx, operation, s.try(ctx, sqlSettings, fn))
}

// writeAll sends the steps as one transaction in one round trip.
func (s *Store) writeAll(ctx context.Context, operation string, steps ...step) error {
	return s.write(ctx, operation, func(ctx context.Context, t *txn) error { return t.finish(ctx, steps...) })
}

func (s *Store) try(ctx context.Context, settings string, fn func(ctx context.Context, t *txn) error) error {
	return s.conns.Repeat(ctx, passes, func() error { return s.once(ctx, settings, fn) })
}

// read runs fn, a single statement without a transaction. It repeats fn if it fails for a
// temporary reason.
func (s *Store) read(ctx context.Context, operation string, fn func(ctx context.Context) error) error {
	err := s.ready(ctx)
	if err == nil {
		err = s.conns.Repeat(ctx, passes, func() error { return fn(ctx) })
	}
	return s.explain(ctx, operation, err)
}

func (s *Store) once(ctx context.Context, settings string, fn func(ctx context.Context, t *txn) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.in(ctx, settings, fn)
}

// in runs fn in a transaction, without a check of the schema.
func (s *Store) in(ctx context.Context, settings string, fn func(ctx context.Context, t *txn) error) (err error) {
	conn, err := s.conns.Acquire(ctx)
	if err != nil {
		return err
	}
	t := &txn{s: s, conn: conn, settings: settings}
	defer func() { t.release(ctx, err) }()
	return fn(ctx, t)
}
