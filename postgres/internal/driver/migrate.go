package driver

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlHasSchema  = `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1::text)`
	sqlLockSchema = `SELECT pg_catalog.pg_advisory_xact_lock($1::bigint)`

	// sqlDDLSettings limits the wait for locks. A migration waits for locks on tables that appends need, and appends wait behind it.
	// So it waits shortly, and then lets them pass for migratePause.
	sqlDDLSettings = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
	pg_catalog.set_config('lock_timeout', '50ms', true)`
	migratePause = 1500 * time.Millisecond

	// sqlInTheWay lists the other sessions that have a lock on a table of the schema $1.
	sqlInTheWay = `SELECT coalesce(string_agg(DISTINCT format('%s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename)), ', '),
		'')
FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_stat_activity AS a
ON a.pid = l.pid
WHERE n.nspname = $1::text AND l.granted AND l.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '1 second'
	AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// Ensure creates the schema and its tables, or updates them. Each version is one transaction; if there is no schema, all versions together
// are one. While a migration waits for a lock on a table, at most 50 ms at a time, others wait behind it. It then lets them pass for 1.5 to
// 3 s and tries again, until ctx ends. So an upgrade waits for a pg_dump, and logs the sessions for which it waits. See outmill.Schema.
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
	for told := false; ; told = true {
		err := d.conns.Repeat(ctx, again, func() error { return d.inOwnTx(ctx, func(tx pgx.Tx) error { return d.migrate(ctx, tx, migrations) }) })
		if err == nil {
			return nil
		}
		if code(err) != codeLockTimeout {
			return fmt.Errorf("schema version %d: %w", last, err)
		}
		if !told {
			d.tellWhoIsInTheWay(ctx, last)
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

// tellWhoIsInTheWay logs the sessions for which a migration waits.
func (d *Driver) tellWhoIsInTheWay(ctx context.Context, version int) {
	sessions := "unknown"
	_ = d.query(ctx, sqlInTheWay, []any{d.config.Schema}, func(scan func(...any) error) error { return scan(&sessions) })
	d.config.Logger.Info("The upgrade of the schema waits for transactions that use its tables; it tries again until they end",
		watermill.LogFields{"version": version, "sessions": sessions})
}

// migrate brings the schema to the version of the last migration, unless it has that version.
func (d *Driver) migrate(ctx context.Context, tx pgx.Tx, migrations []sqlkit.Migration) error {
	if _, err := tx.Exec(ctx, sqlLockSchema, d.names.lockOf("schema")); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlDDLSettings); err != nil {
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
