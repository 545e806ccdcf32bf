package migrations

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"
	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/exampletest"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	_ "github.com/outmill/outmill/mysql"
	_ "github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	_ "github.com/outmill/outmill/sqlite"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

// engine is a kind of database, and how the two tools reach it.
type engine struct {
	url     func(t *testing.T) string
	driver  string
	source  func(url string) string
	dialect goose.Dialect
	migrate func(db *sql.DB) (database.Driver, error)
}

var engines = map[string]engine{
	"SQLite": {
		url:    func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "shop.db") },
		driver: "sqlite", source: func(url string) string { return url[len("sqlite:"):] }, dialect: goose.DialectSQLite3,
		migrate: func(db *sql.DB) (database.Driver, error) {
			return migratesqlite.WithInstance(db, &migratesqlite.Config{})
		},
	},
	"PostgreSQL": {
		url:    func(t *testing.T) string { return postgrestest.Database(t) },
		driver: "pgx", source: func(url string) string { return url }, dialect: goose.DialectPostgres,
		migrate: func(db *sql.DB) (database.Driver, error) { return migratepgx.WithInstance(db, &migratepgx.Config{}) },
	},
	"MariaDB": {
		url:    func(t *testing.T) string { return mysqltest.Database(t) },
		driver: "mysql", source: mysqlSource, dialect: goose.DialectMySQL,
		migrate: func(db *sql.DB) (database.Driver, error) {
			return migratemysql.WithInstance(db, &migratemysql.Config{})
		},
	},
}

// mysqlSource is the data source name of a URL. golang-migrate sends a file as one text.
func mysqlSource(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	config := driver.NewConfig()
	config.User, config.Net, config.Addr, config.DBName, config.MultiStatements = u.User.Username(), "tcp", u.Host, u.Path[1:], true
	config.Passwd, _ = u.User.Password()
	return config.FormatDSN()
}

func TestMigrations(t *testing.T) {
	t.Parallel()
	tools := map[string]func(t *testing.T, e engine, db *sql.DB, schema []byte){"goose": runGoose, "golang-migrate": runMigrate}
	for name, e := range engines {
		for tool, run := range tools {
			t.Run("what schema print prints for "+name+" is a migration of "+tool, func(t *testing.T) {
				t.Parallel()
				url := e.url(t)
				schema := printed(t, url)
				db, err := sql.Open(e.driver, e.source(url))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				run(t, e, db, schema)
				requireUsable(t, url)
			})
		}
	}
}

// printed is the output of the command.
func printed(t *testing.T, url string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "run", "github.com/outmill/outmill/cmd/outmill", "schema", "print", url)
	command.Stderr = os.Stderr
	schema, err := command.Output()
	require.NoError(t, err)
	return schema
}

func runGoose(t *testing.T, e engine, db *sql.DB, schema []byte) {
	dir := write(t, "00001_outmill.sql", schema)
	provider, err := goose.NewProvider(e.dialect, db, os.DirFS(dir))
	require.NoError(t, err)
	_, err = provider.Up(t.Context())
	require.NoError(t, err)
}

func runMigrate(t *testing.T, e engine, db *sql.DB, schema []byte) {
	dir := write(t, "000001_outmill.up.sql", schema)
	driver, err := e.migrate(db)
	require.NoError(t, err)
	source := url.URL{Scheme: "file", Path: dir}
	migration, err := migrate.NewWithDatabaseInstance(source.String(), "shop", driver)
	require.NoError(t, err)
	require.NoError(t, migration.Up())
	sourceErr, databaseErr := migration.Close()
	require.NoError(t, sourceErr)
	require.NoError(t, databaseErr)
}

func write(t *testing.T, name string, schema []byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), schema, 0o600))
	return dir
}

// requireUsable publishes a message and finds it.
func requireUsable(t *testing.T, url string) {
	t.Helper()
	store, err := outmill.Open(t.Context(), url, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	require.NoError(t, pub.Publish("orders", message.NewMessage("m1", []byte("Ada's order"))))
	found, err := store.List(context.WithoutCancel(t.Context()), outmill.ListQuery{Topic: "orders", Content: true})
	require.NoError(t, err)
	require.Len(t, found, 1)
}
