package driver

import (
	"cmp"
	"context"
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

const (
	// sqlHasMeta returns 0 without the table, 1 if it is another one, and 2 if it is that of the schema.
	sqlHasMeta = `SELECT count(*) + (SELECT count(*) FROM pragma_table_info(?1) WHERE name = 'routes') FROM sqlite_master
WHERE type = 'table' AND name = ?1`
	sqlTaken   = `SELECT name FROM sqlite_master WHERE lower(name) IN (SELECT lower(value) FROM json_each(?)) ORDER BY name`
	sqlVersion = `SELECT version FROM {p:meta} WHERE only_row = 1`

	// sqlLockAll is sqlLock without a schema. After a read, SQLite would refuse a write if another process has migrated in between.
	sqlLockAll = `CREATE TABLE IF NOT EXISTS {p:lock} (x); DROP TABLE {p:lock}`
)

// prefixSettings are the settings that give the tables other names.
const prefixSettings = "Config.TablePrefix (table_prefix in a URL)"

// Ensure creates the tables, or updates them, in one transaction. See outmill.Schema.
func (d *Driver) Ensure(ctx context.Context) error {
	err := d.whileBusy(ctx, func() error { return d.checkSchema(ctx, d.db) })
	if !errors.Is(err, outmill.ErrSchemaMissing) && !errors.Is(err, outmill.ErrSchemaOutdated) {
		return err
	}
	migrations, err := sqlkit.LoadMigrations(schemaFiles, "schema", d.text)
	if err != nil {
		return err
	}
	return d.inTurn(ctx, false, func(ctx context.Context) error {
		return d.whileBusy(ctx, func() error {
			return d.once(ctx, sqlLockAll, func(t *tx) error { return d.migrate(ctx, t, migrations) })
		})
	})
}

func (d *Driver) migrate(ctx context.Context, t *tx, migrations []sqlkit.Migration) error {
	version, err := d.version(ctx, t.h)
	if err != nil {
		return err
	}
	if version > schemaVersion {
		return versionError(version)
	}
	if version == 0 {
		// The tables of other programs.
		taken, err := t.texts(ctx, sqlTaken, jsonOf(sqlkit.TablesOf(migrations)))
		if err := cmp.Or(err, storekit.ForeignTables("table", taken, prefixSettings)); err != nil {
			return err
		}
	}
	for _, statement := range sqlkit.Statements(migrations[version:]) {
		if _, err := t.h.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("schema version %d: %w", schemaVersion, err)
		}
	}
	return nil
}

// StatementsFrom returns the statements that bring a schema of that version to the newest one. See outmill.Schema.
func (d *Driver) StatementsFrom(version int) ([]string, error) {
	return sqlkit.StatementsFrom(schemaFiles, "schema", d.text, version)
}

// checkSchema returns an error if this program does not support the schema's version.
func (d *Driver) checkSchema(ctx context.Context, h sqlkit.Handle) error {
	version, err := d.version(ctx, h)
	return cmp.Or(err, versionError(version))
}

// version returns 0 if there is no schema.
func (d *Driver) version(ctx context.Context, h sqlkit.Handle) (int, error) {
	t, meta := d.plain(h), d.config.Prefix+"meta"
	switch found, err := t.number(ctx, sqlHasMeta, meta); {
	case err != nil || found == 0:
		return 0, err
	case found == 1:
		// Versions of this store before its first release had a table of this name, too.
		return 0, fmt.Errorf("%w: the table %s is not one of this version's: drop the tables, indexes and views whose names begin with %s, "+
			"or choose another name for Outmill's with %s", outmill.ErrSchemaForeign, meta, d.config.Prefix, prefixSettings)
	}
	version, err := t.number(ctx, sqlVersion)
	return int(version), err
}
