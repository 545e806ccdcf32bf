package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaVersion is the version that this program supports: that of the newest file in schema.
const schemaVersion = 2

const (
	// sqlHasMeta reads the catalog, because to_regclass may use a cached result from before the
	// transaction waited for a lock.
	sqlHasMeta = `SELECT EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
	WHERE n.nspname = $1::text AND c.relname = $2::text), current_setting('server_encoding')`
	sqlVersions = `SELECT version, compatible FROM {p:meta} WHERE only_row`

	sqlVersionAndLane = `SELECT version, compatible, ` + laneColumns + `, current_setting('server_encoding') FROM {p:meta} WHERE only_row`

	// encodingUTF8 is the encoding that a database must have.
	encodingUTF8 = "UTF8"

	// A program older than compatible must not use the schema. A migration that older programs
	// need not know leaves compatible as it is.
	sqlSetVersion = `INSERT INTO {p:meta} (only_row, version, compatible) VALUES (true, %d, %d)
ON CONFLICT (only_row) DO UPDATE SET version = excluded.version, compatible = greatest(excluded.compatible, {p:meta}.compatible)`

	sqlTaken = `SELECT coalesce(array_agg(c.relname::text ORDER BY c.relname), '{}') FROM pg_class AS c
		JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])`
	sqlHasSchema    = `SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1::text)`
	sqlLockSchema   = `SELECT pg_advisory_xact_lock($1::bigint)`
	sqlCreateSchema = `CREATE SCHEMA IF NOT EXISTS `

	// sqlDDLSettings limits the wait for locks. A migration waits for locks on tables that
	// appends need, and appends wait behind it. So it waits shortly, and then lets them pass
	// for migratePause.
	sqlDDLSettings = `SELECT set_config('search_path', 'pg_catalog, pg_temp', true), set_config('lock_timeout', '50ms', true)`
	migratePause   = 1500 * time.Millisecond

	// sqlInTheWay lists the other sessions that have a lock on a table of the schema $1.
	sqlInTheWay = `SELECT coalesce(string_agg(DISTINCT format('%s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename)), ', '),
		'')
FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_stat_activity AS a
ON a.pid = l.pid
WHERE n.nspname = $1::text AND l.granted AND l.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '1 second'
	AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// compatible has the versions that older programs do not support, each with the oldest version
// that does. See storekit.CompatibleWith.
var compatible = map[int]int{1: 1}

// Ensure creates the schema and its tables, or updates them. Each version is one transaction;
// if there is no schema, all versions together are one. While a migration waits for a lock on a
// table, at most 50 ms at a time, others wait behind it. It then lets them pass for 1.5 to 3 s
// and tries again, until ctx ends. So an upgrade waits for a pg_dump, and logs the sessions for
// which it waits. See outmill.Schema.
//
// The database must have the encoding UTF8, or this and every other call fails with
// outmill.ErrInvalidConfig.
//
// Ensure creates the schema Config.Schema if it is missing, which needs the right CREATE on the
// database. The tables need the right CREATE on the schema.
//
// In a schema that it creates, it turns the log on unless Config.Lane is LaneRows. In an
// existing schema it turns the log on if Config.Lane is LaneLog.
func (s *Store) Ensure(ctx context.Context) error {
	return s.explain(ctx, "ensure the schema", s.ensure(ctx, schemaFiles))
}

func (s *Store) ensure(ctx context.Context, files fs.FS) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	migrations, err := s.migrations(files)
	if err != nil {
		return err
	}
	found, err := s.state(ctx)
	if err != nil {
		return err
	}
	switch {
	case found.Version == 0:
		err = s.migrateTo(ctx, migrations)
	case found.Version < len(migrations):
		for i := 0; i < len(migrations) && err == nil; i++ {
			err = s.migrateTo(ctx, migrations[i:i+1])
		}
	default:
		err = found.Check(schemaVersion)
	}
	if err == nil && s.config.Lane == LaneLog {
		err = s.useLog(ctx)
	}
	return err
}

// migrateTo runs migrations in one transaction. It tries again if another session blocks it.
func (s *Store) migrateTo(ctx context.Context, migrations []sqlkit.Migration) error {
	waits, told := storekit.NewWaits(firstPause, lastPause), false
	for {
		err := s.migrate(ctx, migrations)
		if err == nil {
			return nil
		}
		version := migrations[len(migrations)-1].Version
		if !passes(err) {
			return fmt.Errorf("schema version %d: %w", version, err)
		}
		wait := waits.Next()
		if code(err) == codeLockTimeout {
			wait = migratePause + rand.N(migratePause)
			if !told {
				s.tellWhoIsInTheWay(ctx, version)
				told = true
			}
		}
		if err := storekit.Pause(ctx, wait); err != nil {
			return err
		}
	}
}

// tellWhoIsInTheWay logs the sessions for which a migration waits.
func (s *Store) tellWhoIsInTheWay(ctx context.Context, version int) {
	var sessions string
	if err := s.safe().QueryRow(ctx, sqlInTheWay, s.config.Schema).Scan(&sessions); err != nil {
		sessions = "unknown"
	}
	s.logger.Info("The upgrade of the schema waits for transactions that use its tables; it tries again until they end",
		watermill.LogFields{"version": version, "sessions": sessions})
}

// migrate brings the schema to the version of the last migration, unless it has that version. A
// new schema has the log.
func (s *Store) migrate(ctx context.Context, migrations []sqlkit.Migration) error {
	last := migrations[len(migrations)-1].Version
	return s.inPoolTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockSchema, s.lockOf("schema")); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlDDLSettings); err != nil {
			return err
		}
		found, err := s.stateIn(ctx, tx)
		if err != nil {
			return err
		}
		if found.Version >= last {
			if found.Version > schemaVersion {
				return found.Check(schemaVersion)
			}
			return nil
		}
		if err := s.createSchema(ctx, tx); err != nil {
			return err
		}
		if found.Version == 0 {
			if err := s.checkNames(ctx, tx, migrations); err != nil {
				return err
			}
		}
		for _, m := range migrations {
			if err := apply(ctx, tx, m, found.Version); err != nil {
				return err
			}
		}
		if found.Version == 0 && s.config.Lane != LaneRows {
			return s.useLogIn(ctx, tx)
		}
		return nil
	})
}

// checkNames refuses tables and views of other programs.
func (s *Store) checkNames(ctx context.Context, tx pgx.Tx, migrations []sqlkit.Migration) error {
	var taken []string
	if err := tx.QueryRow(ctx, sqlTaken, s.config.Schema, sqlkit.TablesOf(migrations)).Scan(&taken); err != nil {
		return err
	}
	for i, name := range taken {
		taken[i] = pgx.Identifier{s.config.Schema, name}.Sanitize()
	}
	return storekit.ForeignTables("table", taken, "Config.Schema or Config.TablePrefix (schema and table_prefix in a URL)")
}

func apply(ctx context.Context, tx pgx.Tx, m sqlkit.Migration, version int) error {
	if m.Version <= version {
		return nil
	}
	for _, statement := range m.Statements {
		if _, err := tx.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// createSchema checks first, since CREATE SCHEMA IF NOT EXISTS needs the right to create a
// schema even if it exists.
func (s *Store) createSchema(ctx context.Context, tx pgx.Tx) error {
	var exists bool
	if err := tx.QueryRow(ctx, sqlHasSchema, s.config.Schema).Scan(&exists); err != nil || exists {
		return err
	}
	_, err := tx.Exec(ctx, s.createSchemaStatement())
	return err
}

func (s *Store) createSchemaStatement() string {
	return sqlCreateSchema + pgx.Identifier{s.config.Schema}.Sanitize()
}

// Statements returns the schema as plain SQL, with the statements that record
// its version, and, unless Config.Lane is LaneRows, the one that turns the log on.
func (s *Store) Statements() []string {
	statements, _ := s.StatementsFrom(0)
	return statements
}

// StatementsFrom returns the statements that bring a schema of that version to the newest one.
// See outmill.Schema. As Ensure does, it turns the log on in an empty database unless
// Config.Lane is LaneRows, and in an existing schema if Config.Lane is LaneLog. In that case it
// returns this statement for the newest version too.
func (s *Store) StatementsFrom(version int) ([]string, error) {
	const operation = "statements"
	migrations, err := s.migrations(schemaFiles)
	if err == nil {
		err = storekit.CheckSchemaVersion(version, len(migrations))
	}
	if err != nil {
		return nil, s.explain(context.Background(), operation, err)
	}
	statements := sqlkit.Statements(migrations[version:])
	if version == 0 {
		statements = append([]string{s.createSchemaStatement()}, statements...)
	}
	if s.config.Lane == LaneLog || version == 0 && s.config.Lane != LaneRows {
		statements = append(statements, s.sql.expand(sqlUseLog))
	}
	return statements, nil
}

// migrations can fail only if the files built into the program are wrong, which a test
// excludes.
func (s *Store) migrations(files fs.FS) ([]sqlkit.Migration, error) {
	migrations, err := sqlkit.LoadMigrations(files, "schema", s.sql.expand)
	if err != nil {
		return nil, err
	}
	for i := range migrations {
		m := &migrations[i]
		m.Statements = append(m.Statements, s.sql.expand(fmt.Sprintf(sqlSetVersion, m.Version, storekit.CompatibleWith(m.Version, compatible))))
	}
	return migrations, nil
}

func (s *Store) checkSchema(ctx context.Context) error {
	found, err := s.state(ctx)
	if err != nil {
		return err
	}
	return found.Check(schemaVersion)
}

// checkAtOnce is checkSchema and readLanes in one statement, because each statement costs the
// start of a program two round trips. If the statement fails, as it does without a schema, the
// separate ones find the reason.
func (s *Store) checkAtOnce(ctx context.Context) error {
	var version storekit.SchemaVersion
	var lanes lanes
	var cache int64
	var encoding string
	err := s.safe().QueryRow(ctx, s.sql.text(sqlVersionAndLane)).
		Scan(&version.Version, &version.Compatible, &lanes.write, &lanes.logged, &cache, &encoding)
	switch {
	case err == nil && encoding == encodingUTF8:
		if err := version.Check(schemaVersion); err != nil {
			return err
		}
		return s.useLanes(lanes, cache)
	case err != nil && code(err) == "" && !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	if err := s.checkSchema(ctx); err != nil {
		return err
	}
	return s.readLanes(ctx)
}

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func (s *Store) state(ctx context.Context) (storekit.SchemaVersion, error) {
	return s.stateIn(ctx, s.safe())
}

func (s *Store) stateIn(ctx context.Context, db querier) (storekit.SchemaVersion, error) {
	var exists bool
	var encoding string
	if err := db.QueryRow(ctx, sqlHasMeta, s.config.Schema, s.config.TablePrefix+"meta").Scan(&exists, &encoding); err != nil {
		return storekit.SchemaVersion{}, err
	}
	if encoding != encodingUTF8 {
		return storekit.SchemaVersion{},
			storekit.InvalidConfig("the database has the encoding %s, which cannot hold every message: create it with ENCODING 'UTF8'", encoding)
	}
	if !exists {
		return storekit.SchemaVersion{}, nil
	}
	var found storekit.SchemaVersion
	err := db.QueryRow(ctx, s.sql.expand(sqlVersions)).Scan(&found.Version, &found.Compatible)
	if errors.Is(err, pgx.ErrNoRows) {
		return storekit.SchemaVersion{}, nil
	}
	return found, err
}

// lockOf returns the number of an advisory lock of this store's schema.
func (s *Store) lockOf(parts ...string) int64 { return s.sql.lockOf(parts...) }

// lockOfTopic returns the number of the lock that an ordered claim of the topic holds.
func (s *Store) lockOfTopic(group, topic string) int64 { return s.lockOf("topic", group, topic) }
