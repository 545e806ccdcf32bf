package sqlserver

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Each directory of schema is one version, and its files are one migration, in
// the order of their names. They are plain T-SQL with the default names.
//
//go:embed schema
var schemaFiles embed.FS

// schemaVersion is the version of this program's schema: that of the newest directory in schema.
const schemaVersion = 1

const (
	// sqlHasMeta finds the table under any collation of the catalog.
	sqlHasMeta = `SELECT CASE WHEN OBJECT_ID(N'[dbo].[OutboxMeta]', N'U') IS NULL THEN 0
		ELSE 1 END, ISNULL(CAST(SERVERPROPERTY('Babelfish') AS INT), 0),
    ISNULL((SELECT CAST(is_read_committed_snapshot_on AS INT) FROM sys.databases WHERE name = DB_NAME()), 0)`
	sqlVersions = `SELECT Version, Compatible FROM [dbo].[OutboxMeta] WHERE OnlyRow = 1`

	// A program older than Compatible must not use the schema. A migration that does not affect
	// older programs does not change Compatible.
	sqlSetVersion = `IF EXISTS (SELECT 1 FROM [dbo].[OutboxMeta])
    UPDATE [dbo].[OutboxMeta] SET Version = %[1]d, Compatible = %[2]d;
ELSE
    INSERT [dbo].[OutboxMeta] (OnlyRow, Version, Compatible, Generation, Pauses) VALUES (1, %[1]d, %[2]d, 0, 0);`

	sqlLockSchema = `DECLARE @rc INT; EXEC @rc = sp_getapplock @Resource = @name, @LockMode = N'Exclusive', @LockOwner = N'Transaction',
		@LockTimeout = 60000;
IF @rc < 0 THROW 50901, N'outmill: somebody else is at the schema; the call may be repeated', 1`

	sqlTaken = `SELECT o.name FROM (SELECT [value] AS Name FROM OPENJSON(@ids)) AS i
		JOIN sys.objects AS o ON o.name = i.Name WHERE o.schema_id = SCHEMA_ID(@name) ORDER BY o.name`
	sqlHasSchema = `SELECT CASE WHEN SCHEMA_ID(@name) IS NULL THEN 0 ELSE 1 END`

	// OPENJSON needs level 130. Babelfish has OPENJSON at any level, and reports 120.
	minCompatibility = 130
	sqlCompatibility = `SELECT CASE WHEN SERVERPROPERTY('Babelfish') = 1 THEN 150 ELSE compatibility_level END FROM sys.databases
		WHERE name = DB_NAME()`
)

// compatible has, for each version that is not compatible with all older programs, the oldest
// version whose programs can use it. See storekit.CompatibleWith.
var compatible = map[int]int{1: 1}

// Ensure creates the tables, types and procedures, or brings them up to date. Each version is one
// transaction. See outmill.Schema.
//
// It needs ALTER on the schema, and CREATE TABLE, CREATE VIEW, CREATE TYPE and CREATE PROCEDURE.
// If the schema of Config.Schema does not exist, Ensure creates it, and needs CREATE SCHEMA.
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
	found, err := s.stateOf(ctx, s.db)
	if err != nil {
		return err
	}
	if found.Version >= len(migrations) {
		return schemaError(found)
	}
	if err := s.checkDatabase(ctx); err != nil {
		return err
	}
	for _, m := range migrations {
		if err := s.migrate(ctx, m); err != nil {
			return fmt.Errorf("schema version %d: %w", m.Version, err)
		}
	}
	return nil
}

func (s *Store) checkDatabase(ctx context.Context) error {
	var level int
	if err := s.db.QueryRowContext(ctx, sqlCompatibility).Scan(&level); err != nil {
		return err
	}
	if level < minCompatibility {
		return fmt.Errorf("the database has compatibility level %d, and the store needs %d at least: ALTER DATABASE CURRENT SET "+
			"COMPATIBILITY_LEVEL = 150", level, minCompatibility)
	}
	return nil
}

// migrate brings the schema to the migration's version, unless it already has that version.
func (s *Store) migrate(ctx context.Context, m sqlkit.Migration) error {
	return s.in(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, sqlLockSchema, sql.Named("name", "outmill:schema:"+s.config.Schema+"."+s.config.Table)); err != nil {
			return err
		}
		found, err := s.stateOf(ctx, tx)
		if err != nil {
			return err
		}
		if found.Version >= m.Version {
			if found.Version > schemaVersion {
				return schemaError(found)
			}
			return nil
		}
		if err := s.createSchema(ctx, tx); err != nil {
			return err
		}
		if found.Version == 0 {
			if err := s.checkNames(ctx, tx, m); err != nil {
				return err
			}
		}
		for _, batch := range m.Statements {
			if _, err := tx.ExecContext(ctx, batch); err != nil {
				return fmt.Errorf("%w, at:\n%s", err, head(batch))
			}
		}
		return nil
	})
}

// checkNames refuses tables of other programs, such as the dbo.Outbox of the functional specification.
func (s *Store) checkNames(ctx context.Context, tx *sql.Tx, m sqlkit.Migration) error {
	rows, err := tx.QueryContext(ctx, sqlTaken, sql.Named("name", s.config.Schema),
		sql.Named("ids", jsonOf(sqlkit.TablesOf([]sqlkit.Migration{m}))))
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
		taken = append(taken, "["+s.config.Schema+"].["+name+"]")
	}
	return errors.Join(rows.Err(), storekit.ForeignTables("table", taken, "Config.Schema or Config.Table (schema and table in a URL)"))
}

// head returns the beginning of a batch, which is enough to find it.
func head(batch string) string {
	lines := strings.SplitN(batch, "\n", 12)
	return strings.Join(lines[:min(len(lines), 11)], "\n")
}

func (s *Store) createSchema(ctx context.Context, tx *sql.Tx) error {
	var exists bool
	if err := tx.QueryRowContext(ctx, sqlHasSchema, sql.Named("name", s.config.Schema)).Scan(&exists); err != nil || exists {
		return err
	}
	_, err := tx.ExecContext(ctx, "CREATE SCHEMA ["+s.config.Schema+"]")
	return err
}

// Statements returns the schema as T-SQL batches, including those that record its version. Send
// each batch by itself, as sqlcmd sends the text between two lines GO.
func (s *Store) Statements() []string {
	statements, _ := s.StatementsFrom(0)
	return statements
}

// StatementsFrom returns the batches that bring a schema of that version to the newest
// one. See outmill.Schema.
func (s *Store) StatementsFrom(version int) ([]string, error) {
	migrations, err := s.migrations(schemaFiles)
	if err == nil {
		err = storekit.CheckSchemaVersion(version, len(migrations))
	}
	if err != nil {
		return nil, s.explain(context.Background(), "statements", err)
	}
	var statements []string
	if version == 0 {
		statements = []string{fmt.Sprintf("IF SCHEMA_ID(N'%[1]s') IS NULL EXEC(N'CREATE SCHEMA [%[1]s]')", s.config.Schema)}
	}
	return append(statements, sqlkit.Statements(migrations[version:])...), nil
}

// migrations can fail only if the embedded files are wrong, which a test excludes.
func (s *Store) migrations(files fs.FS) ([]sqlkit.Migration, error) {
	dirs, err := fs.ReadDir(files, "schema")
	if err != nil {
		return nil, err
	}
	migrations := make([]sqlkit.Migration, 0, len(dirs))
	for i, dir := range dirs {
		m := sqlkit.Migration{Version: i + 1}
		if n, err := strconv.Atoi(dir.Name()); err != nil || n != m.Version {
			return nil, fmt.Errorf("schema/%s: want version %04d here", dir.Name(), m.Version)
		}
		if m.Statements, err = s.batches(files, path.Join("schema", dir.Name())); err != nil {
			return nil, err
		}
		m.Statements = append(m.Statements, s.sql.expand(fmt.Sprintf(sqlSetVersion, m.Version, storekit.CompatibleWith(m.Version, compatible))))
		migrations = append(migrations, m)
	}
	return migrations, nil
}

func (s *Store) batches(files fs.FS, dir string) ([]string, error) {
	names, err := fs.Glob(files, path.Join(dir, "*.sql"))
	if err != nil {
		return nil, err
	}
	var batches []string
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		for _, batch := range strings.Split("\n"+string(text), "\nGO\n") {
			if batch = strings.TrimSpace(batch); batch != "" {
				batches = append(batches, s.sql.expand(batch))
			}
		}
	}
	return batches, nil
}

func (s *Store) checkSchema(ctx context.Context) error {
	found, err := s.stateOf(ctx, s.db)
	if err != nil {
		return err
	}
	return schemaError(found)
}

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Store) stateOf(ctx context.Context, db rowQuerier) (storekit.SchemaVersion, error) {
	var exists, babelfish, versioned bool
	err := db.QueryRowContext(ctx, s.sql.expand(sqlHasMeta)).Scan(&exists, &babelfish, &versioned)
	s.babelfish.Store(babelfish)
	s.versioned.Store(versioned || babelfish)
	if err != nil || !exists {
		return storekit.SchemaVersion{}, err
	}
	var found storekit.SchemaVersion
	err = db.QueryRowContext(ctx, s.sql.expand(sqlVersions)).Scan(&found.Version, &found.Compatible)
	if errors.Is(err, sql.ErrNoRows) {
		return storekit.SchemaVersion{}, nil
	}
	return found, err
}

// schemaError returns the reason why this program cannot use the schema, or nil.
func schemaError(found storekit.SchemaVersion) error {
	err := found.Check(schemaVersion)
	if errors.Is(err, outmill.ErrSchemaMissing) {
		err = fmt.Errorf("%w (or the login has no rights on it: see Store.Grants)", err)
	}
	return err
}
