package driver

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaVersion is the version that this program supports: that of the newest file in schema.
const schemaVersion = 1

const (
	sqlTables = `SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()
	AND table_name IN (?) ORDER BY table_name`
	sqlVersion = `SELECT version, compatible FROM {p:meta} WHERE only_row = 1`
	// sqlSchemaLock lets one process at a time create the tables: each statement of DDL is a transaction by itself.
	sqlSchemaLock   = `SELECT COALESCE(GET_LOCK(?, 60), 0)`
	sqlSchemaUnlock = `SELECT RELEASE_LOCK(?)`
)

// prefixSettings are the settings that give the tables other names.
const prefixSettings = "Config.TablePrefix (table_prefix in a URL)"

// Ensure creates the tables. Each statement is repeatable, and the last one writes the version: if a process dies in between, the next
// one goes on.
func (d *Driver) Ensure(ctx context.Context) error {
	version, err := d.versionNow(ctx)
	if err != nil || version.Version > 0 {
		return cmp.Or(err, version.Check(schemaVersion))
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	name := "outmill:" + d.config.Prefix
	t := d.on(conn)
	locked := false
	if err := t.each(ctx, func(scan scan) error { return scan(&locked) }, sqlSchemaLock, name); err != nil {
		return err
	}
	if !locked {
		return fmt.Errorf("another process has been at the schema for a minute: %w", storekit.ErrBusy)
	}
	defer func() {
		_ = t.each(context.WithoutCancel(ctx), func(scan scan) error { return scan(new(sql.NullInt64)) }, sqlSchemaUnlock, name)
	}()
	return d.create(ctx, t)
}

func (d *Driver) create(ctx context.Context, t *tx) error {
	version, err := d.version(ctx, t.on)
	if err != nil || version.Version > 0 {
		return cmp.Or(err, version.Check(schemaVersion))
	}
	if err := d.refuseForeign(ctx, t); err != nil {
		return err
	}
	statements, err := d.StatementsFrom(0)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := t.on.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("schema version %d: %w", schemaVersion, err)
		}
	}
	// The session may have no autocommit.
	_, err = t.on.ExecContext(ctx, "COMMIT")
	return err
}

// refuseForeign returns an error if the tables of other programs have our names. If that of the version is ours, a process has begun
// before.
func (d *Driver) refuseForeign(ctx context.Context, t *tx) error {
	parts, err := sqlkit.Parts(schemaFiles, "schema")
	if err != nil {
		return err
	}
	taken, err := list(ctx, t, sqlkit.One[string], sqlTables, sqlkit.PartNames(parts, d.config.Prefix))
	if err != nil {
		return err
	}
	for _, name := range taken {
		if strings.EqualFold(name, d.config.Prefix+"meta") {
			return nil
		}
	}
	return storekit.ForeignTables("table", taken, prefixSettings)
}

// StatementsFrom returns the statements that bring a schema of that version to the newest one. See outmill.Schema.
func (d *Driver) StatementsFrom(version int) ([]string, error) {
	return sqlkit.StatementsFrom(schemaFiles, "schema", d.names, version)
}

// versionNow is version in a transaction, so that a session without autocommit stays in none.
func (d *Driver) versionNow(ctx context.Context) (version storekit.SchemaVersion, err error) {
	err = d.in(ctx, func(own *sql.Tx) error {
		version, err = d.version(ctx, own)
		return err
	})
	return version, err
}

// version returns 0 if there is no schema, or one that is not finished.
func (d *Driver) version(ctx context.Context, on sqlkit.Handle) (version storekit.SchemaVersion, err error) {
	err = d.on(on).each(ctx, func(scan scan) error { return scan(&version.Version, &version.Compatible) }, sqlVersion)
	switch number(err) {
	case errNoTable:
		err = nil
	case errNoColumn:
		err = fmt.Errorf("%w: the table %smeta is not one of this version's: drop it and the other tables whose names begin with %s, "+
			"or choose another name for Outmill's with %s", outmill.ErrSchemaForeign, d.config.Prefix, d.config.Prefix, prefixSettings)
	}
	return version, err
}
