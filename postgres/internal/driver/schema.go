package driver

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaVersion is the version that this program supports: that of the newest file in schema.
const schemaVersion = 1

const (
	// sqlHasMeta reads the catalog, because to_regclass may use a cached result from before the transaction waited for a lock.
	sqlHasMeta = `SELECT count(*) > 0, coalesce(bool_or(has.routes), true), pg_catalog.current_setting('server_encoding')
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace CROSS JOIN LATERAL (
	SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attname = 'routes') AS routes) AS has
WHERE n.nspname = $1::text AND c.relname = $2::text`
	sqlVersion = `SELECT version, compatible FROM {p:meta}`
	sqlTaken   = `SELECT c.relname::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[]) ORDER BY 1`
)

// nameSettings are the settings that give the tables other names.
const nameSettings = "Config.Schema or Config.TablePrefix (schema and table_prefix in a URL)"

// encodingUTF8 is the encoding that a database must have.
const encodingUTF8 = "UTF8"

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
	return storekit.ForeignTables("table", taken, nameSettings)
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// whyMissing returns the error of a call that has found no tables, or the reason for which there can be none.
func (d *Driver) whyMissing(ctx context.Context, err error) error {
	own, beginErr := d.begin(ctx)
	if beginErr != nil {
		return err
	}
	defer func() { own.end(ctx, beginErr) }()
	if _, beginErr = d.version(ctx, own.conn); errors.Is(beginErr, outmill.ErrInvalidConfig) {
		return beginErr
	}
	return err
}

// readVersion returns the version 0 if there is no schema.
func (d *Driver) readVersion(ctx context.Context) (version storekit.SchemaVersion, err error) {
	err = d.repeat(ctx, func(failures) error {
		own, err := d.begin(ctx)
		if err != nil {
			return err
		}
		defer func() { own.end(ctx, err) }()
		version, err = d.version(ctx, own.conn)
		return err
	})
	return version, err
}

// version returns 0 if there is no schema.
func (d *Driver) version(ctx context.Context, q querier) (version storekit.SchemaVersion, err error) {
	exists, own, encoding := false, false, ""
	if err := q.QueryRow(ctx, sqlHasMeta, d.config.Schema, d.config.Prefix+"meta").Scan(&exists, &own, &encoding); err != nil {
		return version, err
	}
	if encoding != encodingUTF8 {
		return version, storekit.InvalidConfig("the database has the encoding %s, and the store needs %s: create it with ENCODING 'UTF8'",
			encoding, encodingUTF8)
	}
	if !own {
		// Versions of this store before its first release had a table of this name, too.
		return version, fmt.Errorf("%w: the table %s is not one of this version's: drop its schema, or choose another name for Outmill's with %s",
			outmill.ErrSchemaForeign, d.names.in("{p:meta}"), nameSettings)
	}
	if exists {
		err = q.QueryRow(ctx, d.names.in(sqlVersion)).Scan(&version.Version, &version.Compatible)
	}
	return version, err
}

// StatementsFrom returns the statements that bring a schema of that version to the newest one. See outmill.Schema.
func (d *Driver) StatementsFrom(version int) ([]string, error) {
	migrations, err := d.migrations(schemaFiles)
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

// migrations of the program's own files can fail only if these are wrong, which a test excludes.
func (d *Driver) migrations(files fs.FS) ([]sqlkit.Migration, error) {
	return d.migrationsBy(files, d.names.inSchema)
}

// templates are the statements of the migrations with their placeholders.
func (d *Driver) templates() ([]string, error) {
	migrations, err := d.migrationsBy(schemaFiles, func(statement string) string { return statement })
	return sqlkit.Statements(migrations), err
}

func (d *Driver) migrationsBy(files fs.FS, convert func(statement string) string) ([]sqlkit.Migration, error) {
	migrations, err := sqlkit.LoadMigrations(files, "schema", convert)
	if err == nil {
		first := &migrations[0]
		for _, statement := range sqlkit.Split(logSchema + logFunctions + logReadable + restFunctions + quietFunction) {
			first.Statements = append(first.Statements, convert(statement))
		}
	}
	return migrations, err
}
