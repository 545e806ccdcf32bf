package next

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaVersion is the version that this program supports: that of the newest file in schema.
const schemaVersion = 1

const (
	// sqlHasMeta finds the table under any collation of the catalog.
	sqlHasMeta = `SELECT CASE WHEN OBJECT_ID(N'{p:meta}', N'U') IS NULL THEN 0 ELSE 1 END AS found`
	sqlVersion = `SELECT m.version, m.compatible FROM {p:meta} AS m WHERE m.only_row = 1`

	sqlLockSchema = `DECLARE @rc INT, @resource NVARCHAR(255) = @name;
EXEC @rc = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
IF @rc < 0 THROW 50901, N'outmill: somebody else is at the schema; the call may be repeated', 1;`
	sqlTaken = `SELECT o.name FROM (SELECT [value] AS name FROM OPENJSON(@tables)) AS i JOIN sys.objects AS o ON o.name = i.name
WHERE o.schema_id = SCHEMA_ID(@name) ORDER BY o.name`
	sqlHasSchema = `SELECT CASE WHEN SCHEMA_ID(@name) IS NULL THEN 0 ELSE 1 END AS found`

	// sqlDatabase reads what the driver needs of the database. Babelfish keeps versions of rows in any case, and has OPENJSON at any level.
	sqlDatabase = `SELECT CASE WHEN SERVERPROPERTY('Babelfish') = 1 THEN 150 ELSE d.compatibility_level END AS level,
	CASE WHEN SERVERPROPERTY('Babelfish') = 1 THEN 1 ELSE CAST(d.is_read_committed_snapshot_on AS INT) END AS versioned
FROM sys.databases AS d WHERE d.name = DB_NAME()`
	// leastLevel has OPENJSON.
	leastLevel = 130
)

// Ensure creates the schema and its tables in one transaction. See outmill.Schema.
func (d *Driver) Ensure(ctx context.Context) error {
	found, err := d.version(ctx, d.db)
	if err != nil {
		return err
	}
	if found.Version > 0 {
		return found.Check(schemaVersion)
	}
	if err := d.checkDatabase(ctx); err != nil {
		return err
	}
	return storekit.Repeat(ctx, passes, func() error {
		tx, err := d.db.BeginTx(ctx, readCommitted)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := d.create(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// checkDatabase refuses a database in which a statement does not see one moment.
func (d *Driver) checkDatabase(ctx context.Context) error {
	var level int
	var versioned bool
	if err := d.db.QueryRowContext(ctx, sqlDatabase).Scan(&level, &versioned); err != nil {
		return err
	}
	if level < leastLevel {
		return storekit.InvalidConfig("the database has compatibility level %d, and the store needs %d at least: "+
			"ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 150", level, leastLevel)
	}
	if !versioned {
		return storekit.InvalidConfig("the database does not keep versions of rows for READ COMMITTED, so that a claim could not read a line " +
			"of one moment: ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON")
	}
	return nil
}

func (d *Driver) create(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, sqlLockSchema, sql.Named("name", d.lockOf("schema"))); err != nil {
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
	if err := tx.QueryRowContext(ctx, sqlHasSchema, sql.Named("name", d.config.Schema)).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := tx.ExecContext(ctx, "CREATE SCHEMA ["+d.config.Schema+"]"); err != nil {
			return err
		}
	}
	if err := d.checkNames(ctx, tx, migrations); err != nil {
		return err
	}
	for _, statement := range sqlkit.Statements(migrations) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("schema version %d: %w", schemaVersion, err)
		}
	}
	return nil
}

// checkNames refuses tables of other programs.
func (d *Driver) checkNames(ctx context.Context, tx *sql.Tx, migrations []sqlkit.Migration) error {
	rows, err := tx.QueryContext(ctx, sqlTaken, sql.Named("name", d.config.Schema), sql.Named("tables", jsonOf(sqlkit.TablesOf(migrations))))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var taken []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		taken = append(taken, "["+d.config.Schema+"].["+name+"]")
	}
	return errors.Join(rows.Err(), storekit.ForeignTables("table", taken, "Config.Schema or Config.Table (schema and table in a URL)"))
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version returns 0 if there is no schema.
func (d *Driver) version(ctx context.Context, q rowQuerier) (version storekit.SchemaVersion, err error) {
	exists := false
	if err := q.QueryRowContext(ctx, d.names.in(sqlHasMeta)).Scan(&exists); err != nil || !exists {
		return version, err
	}
	err = q.QueryRowContext(ctx, d.names.in(sqlVersion)).Scan(&version.Version, &version.Compatible)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return version, err
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
