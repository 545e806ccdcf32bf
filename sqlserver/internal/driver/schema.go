package driver

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaVersion is the version that this program supports: that of the newest file in schema.
const schemaVersion = 1

// leastLevel is the lowest compatibility level that has OPENJSON.
const leastLevel = 130

// tableSettings are the settings that give the tables other names.
const tableSettings = "Config.Schema or Config.Table (schema and table in a URL)"

// on returns a tx for single statements.
func (d *Driver) on(q querier) *tx { return &tx{d: d, on: q} }

// Ensure creates the schema and its tables in one transaction. See outmill.Schema.
func (d *Driver) Ensure(ctx context.Context) error {
	err := d.checkSchema(ctx, d.on(d.db))
	if !errors.Is(err, outmill.ErrSchemaMissing) {
		return err
	}
	if err := d.on(d.db).checkDatabase(ctx); err != nil {
		return err
	}
	return storekit.Repeat(ctx, judge.Passes, func() error {
		own, err := d.db.BeginTx(ctx, readCommitted)
		if err != nil {
			return err
		}
		defer func() { _ = own.Rollback() }()
		if err := d.create(ctx, own); err != nil {
			return err
		}
		return own.Commit()
	})
}

// checkDatabase refuses a database in which a statement does not see one moment. It asks until it was right once.
func (t *tx) checkDatabase(ctx context.Context) error {
	if t.d.suits.Load() {
		return nil
	}
	var level int
	var versioned, babelfish bool
	if err := t.query(ctx, "database", nil, func(scan scan) error { return scan(&level, &versioned, &babelfish) }); err != nil {
		return err
	}
	if babelfish {
		return storekit.InvalidConfig("the server is Babelfish for PostgreSQL, which ignores the hints by which claims share rows: use package " +
			"postgres on its PostgreSQL side")
	}
	if level < leastLevel {
		return storekit.InvalidConfig("the database has compatibility level %d, and the store needs %d at least: "+
			"ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 150", level, leastLevel)
	}
	if !versioned {
		return storekit.InvalidConfig("the database does not keep versions of rows for READ COMMITTED, so a claim could not read a line " +
			"of one moment: ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE (it ends the transactions of all " +
			"other sessions)")
	}
	t.d.suits.Store(true)
	return nil
}

func (d *Driver) create(ctx context.Context, own *sql.Tx) error {
	t := d.on(own)
	if err := t.query(ctx, "lock_schema", args{"name": d.lockOf("schema")}); err != nil {
		return err
	}
	if err := d.checkSchema(ctx, t); !errors.Is(err, outmill.ErrSchemaMissing) {
		return err
	}
	migrations, err := d.migrations()
	if err != nil {
		return err
	}
	exists := false
	err = t.query(ctx, "has_schema", args{"name": d.config.Schema}, func(scan scan) error { return scan(&exists) })
	if err != nil {
		return err
	}
	if !exists {
		if _, err := own.ExecContext(ctx, "CREATE SCHEMA ["+d.config.Schema+"]"); err != nil {
			return err
		}
	}
	if err := d.checkNames(ctx, t, migrations); err != nil {
		return err
	}
	for _, statement := range sqlkit.Statements(migrations) {
		if _, err := own.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("schema version %d: %w", schemaVersion, err)
		}
	}
	return nil
}

// checkNames refuses tables of other programs.
func (d *Driver) checkNames(ctx context.Context, t *tx, migrations []sqlkit.Migration) error {
	taken, err := list(ctx, t, "taken", args{"name": d.config.Schema, "tables": jsonOf(sqlkit.TablesOf(migrations))}, sqlkit.One[string])
	for i := range taken {
		taken[i] = "[" + d.config.Schema + "].[" + taken[i] + "]"
	}
	return cmp.Or(err, storekit.ForeignTables("table", taken, tableSettings))
}

// checkSchema returns an error if this program does not support the version of the schema.
func (d *Driver) checkSchema(ctx context.Context, t *tx) error {
	found, version := 0, storekit.SchemaVersion{}
	if err := t.query(ctx, "has_meta", nil, func(scan scan) error { return scan(&found) }); err != nil {
		return err
	}
	switch found {
	case 1:
		// Versions of this store before its first release had a table of this name, too.
		return fmt.Errorf("%w: the table %s is not one of this version's: drop it and the other tables, types and procedures whose names begin "+
			"with %s, or choose another name for Outmill's with %s",
			outmill.ErrSchemaForeign, d.names.qualified("meta"), d.config.Table, tableSettings)
	case 2:
		if err := t.query(ctx, "version", nil, func(scan scan) error { return scan(&version.Version, &version.Compatible) }); err != nil {
			return err
		}
	}
	return version.Check(schemaVersion)
}

// ofSchema returns why the server does not know a table, a column or a type.
func (t *tx) ofSchema(ctx context.Context, err error) error {
	switch number(err) {
	case errNoObject, errNoColumn, errNoType:
	default:
		return err
	}
	cause := t.d.checkSchema(ctx, &tx{d: t.d, on: t.on, callers: t.callers})
	for _, known := range []error{outmill.ErrSchemaMissing, outmill.ErrSchemaForeign, outmill.ErrSchemaNewer, outmill.ErrSchemaOutdated} {
		if errors.Is(cause, known) {
			return fmt.Errorf("%w (%w)", cause, err)
		}
	}
	return err
}

// StatementsFrom returns the batches that bring a schema of that version to the newest one. See outmill.Schema.
func (d *Driver) StatementsFrom(version int) ([]string, error) {
	statements, err := sqlkit.StatementsFrom(schemaFiles, "schema", d.names.in, version)
	if err == nil && version == 0 {
		create := fmt.Sprintf("IF SCHEMA_ID(N'%[1]s') IS NULL EXEC(N'CREATE SCHEMA [%[1]s]')", d.config.Schema)
		statements = append([]string{create}, statements...)
	}
	return statements, err
}

// migrations can fail only if the files built into the program are wrong, which a test excludes.
func (d *Driver) migrations() ([]sqlkit.Migration, error) {
	return sqlkit.LoadMigrations(schemaFiles, "schema", d.names.in)
}
