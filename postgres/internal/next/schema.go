package next

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaVersion is the version that this program supports: that of the newest file in schema.
const schemaVersion = 1

const (
	// sqlHasMeta reads the catalog, because to_regclass may use a cached result from before the transaction waited for a lock.
	sqlHasMeta = `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	WHERE n.nspname = $1::text AND c.relname = $2::text), pg_catalog.current_setting('server_encoding')`
	sqlVersion = `SELECT version, compatible FROM {p:meta}`
	sqlTaken   = `SELECT c.relname::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[]) ORDER BY 1`
	sqlHasSchema   = `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1::text)`
	sqlLockSchema  = `SELECT pg_catalog.pg_advisory_xact_lock($1::bigint)`
	sqlDDLSettings = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
	pg_catalog.set_config('lock_timeout', '50ms', true)`
)

// encodingUTF8 is the encoding that a database must have.
const encodingUTF8 = "UTF8"

// Ensure creates the schema and its tables in one transaction. See outmill.Schema.
func (d *Driver) Ensure(ctx context.Context) error {
	return d.conns.Repeat(ctx, passes, func() (err error) {
		own, err := d.begin(ctx)
		if err != nil {
			return err
		}
		defer func() { own.end(ctx, err) }()
		version, err := d.version(ctx, own.conn)
		if err != nil {
			return err
		}
		if version.Version > 0 {
			return version.Check(schemaVersion)
		}
		// A snapshot from before the lock would not see the tables of another process.
		return pgx.BeginTxFunc(ctx, own.conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return d.create(ctx, tx) })
	})
}

func (d *Driver) create(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, sqlLockSchema, d.names.lockOf("schema")); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlDDLSettings); err != nil {
		return err
	}
	version, err := d.version(ctx, tx)
	if err != nil || version.Version > 0 {
		return err
	}
	migrations, err := d.migrations()
	if err != nil {
		return err
	}
	exists := false
	if err := tx.QueryRow(ctx, sqlHasSchema, d.config.Schema).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		// IF NOT EXISTS needs the right to create a schema even if it exists.
		if _, err := tx.Exec(ctx, d.createSchema()); err != nil {
			return err
		}
	}
	if err := d.checkNames(ctx, tx, migrations); err != nil {
		return err
	}
	for _, statement := range sqlkit.Statements(migrations) {
		if _, err := tx.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("schema version %d: %w", schemaVersion, err)
		}
	}
	return nil
}

func (d *Driver) createSchema() string {
	return `CREATE SCHEMA IF NOT EXISTS ` + pgx.Identifier{d.config.Schema}.Sanitize()
}

// checkNames refuses tables and views of other programs.
func (d *Driver) checkNames(ctx context.Context, tx pgx.Tx, migrations []sqlkit.Migration) error {
	rows, err := tx.Query(ctx, sqlTaken, d.config.Schema, sqlkit.TablesOf(migrations))
	if err != nil {
		return err
	}
	taken, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for i, name := range taken {
		taken[i] = pgx.Identifier{d.config.Schema, name}.Sanitize()
	}
	return storekit.ForeignTables("table", taken, "Config.Schema or Config.TablePrefix (schema and table_prefix in a URL)")
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version returns 0 if there is no schema.
func (d *Driver) version(ctx context.Context, q querier) (version storekit.SchemaVersion, err error) {
	exists, encoding := false, ""
	if err := q.QueryRow(ctx, sqlHasMeta, d.config.Schema, d.config.Prefix+"meta").Scan(&exists, &encoding); err != nil {
		return version, err
	}
	if encoding != encodingUTF8 {
		return version, storekit.InvalidConfig("the database has the encoding %s, and the store needs %s: create it with ENCODING 'UTF8'",
			encoding, encodingUTF8)
	}
	if exists {
		err = q.QueryRow(ctx, d.names.in(sqlVersion)).Scan(&version.Version, &version.Compatible)
	}
	return version, err
}

// StatementsFrom returns the statements that bring a schema of that version to the newest one. See outmill.Schema.
func (d *Driver) StatementsFrom(version int) ([]string, error) {
	migrations, err := d.migrations()
	if err == nil {
		err = storekit.CheckSchemaVersion(version, len(migrations))
	}
	if err != nil {
		return nil, err
	}
	statements := sqlkit.Statements(migrations[version:])
	if version == 0 {
		statements = append([]string{d.createSchema()}, statements...)
	}
	return statements, nil
}

// migrations can fail only if the files built into the program are wrong, which a test excludes.
func (d *Driver) migrations() ([]sqlkit.Migration, error) { return d.migrationsBy(d.names.in) }

// templates are the statements of the migrations with their placeholders.
func (d *Driver) templates() ([]string, error) {
	migrations, err := d.migrationsBy(func(statement string) string { return statement })
	return sqlkit.Statements(migrations), err
}

func (d *Driver) migrationsBy(convert func(statement string) string) ([]sqlkit.Migration, error) {
	migrations, err := sqlkit.LoadMigrations(schemaFiles, "schema", convert)
	if err == nil && d.config.Log {
		first := &migrations[0]
		for _, statement := range sqlkit.Split(logSchema + logFunctions + logReadable + restFunctions + quietFunction) {
			first.Statements = append(first.Statements, convert(statement))
		}
	}
	return migrations, err
}
