package driver

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlHasSchema  = `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1::text)`
	sqlLockSchema = `SELECT pg_catalog.pg_advisory_xact_lock($1::bigint)`

	// sqlDDLSettings limits the wait for locks. A migration waits for locks on tables that appends need, and appends wait behind it.
	// So it waits for firstLockWait, and then lets them pass for migratePause. Where others always have transactions open that last longer, it
	// would wait for ever, so each try waits twice as long as the one before, and lastLockWait at most.
	sqlDDLSettings = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
	pg_catalog.set_config('lock_timeout', $1::text, true)`
	migratePause  = 1500 * time.Millisecond
	firstLockWait = 50 * time.Millisecond
	lastLockWait  = 2 * time.Second
	// upgradeWithin is Config.UpgradeWithin by default: longer than most dumps take.
	upgradeWithin = time.Hour

	// sqlInTheWay lists the other sessions that have a lock on a table of the schema $1.
	sqlInTheWay = `SELECT coalesce(string_agg(DISTINCT format('%s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename)), ', '),
		'')
FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_stat_activity AS a
ON a.pid = l.pid
WHERE n.nspname = $1::text AND l.granted AND l.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '1 second'
	AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// Ensure creates the schema and its tables, or updates them. Each version is one transaction; if there is no schema, all versions together
// are one. While a migration waits for a lock on a table, 50 ms and later up to 2 s at a time, others wait behind it. It then lets them
// pass for 1.5 to 3 s and tries again, for an hour. So an upgrade waits for a pg_dump, and logs the sessions for which it waits. Then it
// fails with outmill.ErrSchemaBusy. See outmill.Schema.
func (d *Driver) Ensure(ctx context.Context) error { return d.EnsureFrom(ctx, schemaFiles) }

// EnsureFrom is Ensure of a program with these files in its directory schema. It is for tests.
func (d *Driver) EnsureFrom(ctx context.Context, files fs.FS) error {
	migrations, err := d.migrations(files)
	if err != nil {
		return err
	}
	found, err := d.readVersion(ctx)
	switch {
	case err != nil:
		return err
	case found.Version == 0:
		return d.migrateTo(ctx, migrations)
	case found.Version >= len(migrations):
		return found.Check(schemaVersion)
	}
	for i := found.Version; i < len(migrations) && err == nil; i++ {
		err = d.migrateTo(ctx, migrations[i:i+1])
	}
	return err
}

// migrateTo runs migrations in one transaction. It tries again as long as another session has a lock that it needs.
func (d *Driver) migrateTo(ctx context.Context, migrations []sqlkit.Migration) error {
	last := migrations[len(migrations)-1].Version
	again := func(err error) bool { return passes(err) && code(err) != codeLockTimeout }
	began := time.Now()
	for wait, told := firstLockWait, false; ; wait, told = min(2*wait, lastLockWait), true {
		err := d.conns.Repeat(ctx, again, func() error {
			return d.inOwnTx(ctx, func(tx pgx.Tx) error { return d.migrate(ctx, tx, migrations, wait) })
		})
		if err == nil {
			return nil
		}
		if code(err) != codeLockTimeout {
			return fmt.Errorf("schema version %d: %w", last, err)
		}
		if limit := cmp.Or(d.config.UpgradeWithin, upgradeWithin); time.Since(began) >= limit {
			return fmt.Errorf("%w: schema version %d: tried for %s; transactions of the sessions %s use its tables: end them "+
				"(pg_terminate_backend), or wait until they end, and call Ensure again: %w", outmill.ErrSchemaBusy, last,
				time.Since(began).Round(time.Second), d.whoIsInTheWay(ctx), err)
		}
		if !told {
			d.config.Logger.Info("The upgrade of the schema waits for transactions that use its tables; it tries again until they end",
				watermill.LogFields{"version": last, "sessions": d.whoIsInTheWay(ctx)})
		}
		if err := storekit.Pause(ctx, migratePause+rand.N(migratePause)); err != nil {
			return err
		}
	}
}

// inOwnTx runs fn in a transaction of its own. A snapshot from before the lock of the schema would not see the tables of another process,
// so the level is READ COMMITTED.
func (d *Driver) inOwnTx(ctx context.Context, fn func(tx pgx.Tx) error) (err error) {
	own, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { own.end(ctx, err) }()
	return pgx.BeginTxFunc(ctx, own.conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, fn)
}

// whoIsInTheWay are the sessions for which a migration waits.
func (d *Driver) whoIsInTheWay(ctx context.Context) string {
	sessions := ""
	_ = d.query(ctx, sqlInTheWay, []any{d.config.Schema}, func(scan func(...any) error) error { return scan(&sessions) })
	return cmp.Or(sessions, "(unknown)")
}

// migrate brings the schema to the version of the last migration, unless it has that version.
func (d *Driver) migrate(ctx context.Context, tx pgx.Tx, migrations []sqlkit.Migration, wait time.Duration) error {
	if _, err := tx.Exec(ctx, sqlLockSchema, d.names.lockOf("schema")); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlDDLSettings, strconv.FormatInt(wait.Milliseconds(), 10)+"ms"); err != nil {
		return err
	}
	found, err := d.version(ctx, tx)
	if err != nil {
		return err
	}
	if found.Version >= migrations[len(migrations)-1].Version {
		return found.Check(schemaVersion)
	}
	if found.Version == 0 {
		if err := d.prepare(ctx, tx, migrations); err != nil {
			return err
		}
	}
	for _, m := range migrations {
		if m.Version <= found.Version {
			continue
		}
		for _, statement := range m.Statements {
			if _, err := tx.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare creates a schema that is missing, and refuses tables of other programs in one that exists.
func (d *Driver) prepare(ctx context.Context, tx pgx.Tx, migrations []sqlkit.Migration) error {
	exists := false
	if err := tx.QueryRow(ctx, sqlHasSchema, d.config.Schema).Scan(&exists); err != nil {
		return err
	}
	if exists {
		return d.checkNames(ctx, tx, migrations)
	}
	// IF NOT EXISTS needs the right to create a schema even if it exists.
	_, err := tx.Exec(ctx, d.createSchema())
	return err
}

// SchemaFiles are the migrations of this program. It is for tests.
func SchemaFiles() fs.FS { return schemaFiles }
