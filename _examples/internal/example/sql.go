package example

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

// OnSQL runs a program on SQLite, in a temporary file, on PostgreSQL, or on MySQL or MariaDB.
var OnSQL = Engine[*SQL]{
	Sample:  "sqlite: (a temporary file), " + postgresSample + " or " + mysqlSample,
	Default: temporaryFile,
	Open: func(ctx context.Context, url string) (*SQL, func(context.Context) error, error) {
		switch {
		case url == temporaryFile:
			return openSQLite(ctx)
		case strings.HasPrefix(url, mysqlScheme):
			return openMySQL(ctx, url)
		}
		return openPostgres(ctx, url)
	},
}

// temporaryFile is the URL that means SQLite in a temporary file.
const temporaryFile = "sqlite:"

// poolSize is the number of connections to a server, open and idle ones.
const poolSize = 10

// Dialects of SQL.
const (
	SQLite     = "sqlite"
	PostgreSQL = "postgres"
	MySQL      = "mysql"
)

// SQL is a database of database/sql with an outbox in it.
type SQL struct {
	// DB is the pool of the application. Libraries open theirs over it.
	DB *sql.DB
	// Dialect is SQLite, PostgreSQL or MySQL.
	Dialect string
	// Store is the outbox, in the database of the application.
	Store SQLStore
	// Publisher publishes to the outbox, only in transactions. With RequireTx a forgotten
	// transaction is an error. Without it the message would stay when the sale is rolled back.
	Publisher *publisher.Publisher
	// Path is the file of SQLite, the schema of PostgreSQL, or the database of MySQL.
	Path string
}

// SQLStore is a store on any SQL database.
type SQLStore interface {
	outmill.Store
	WithTx(ctx context.Context, tx any) context.Context
}

// openSQLite makes a database in a temporary file. The application and the
// outbox share a pool.
func openSQLite(ctx context.Context) (*SQL, func(context.Context) error, error) {
	dir, err := os.MkdirTemp("", "outmill_example_")
	if err != nil {
		return nil, nil, err
	}
	removeFile := func(context.Context) error { return os.RemoveAll(dir) }
	path := filepath.Join(dir, "shop.db")
	store, err := sqlite.Open(ctx, path, sqlite.Config{}, nil)
	if err != nil {
		return nil, nil, errors.Join(err, removeFile(ctx))
	}
	return (&SQL{DB: store.DB(), Dialect: SQLite, Store: store, Path: path}).start(ctx, removeFile)
}

// openPostgres makes a schema. The application and the outbox share a pool. An append in a
// transaction needs only the connection of the transaction.
func openPostgres(ctx context.Context, url string) (*SQL, func(context.Context) error, error) {
	schema, drop, err := openDatabase(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("pgx", schema.URL)
	if err != nil {
		return nil, nil, errors.Join(err, drop(context.WithoutCancel(ctx)))
	}
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	store, err := postgres.NewFromDB(db, postgres.Config{Schema: schema.Schema}, nil)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close(), drop(context.WithoutCancel(ctx)))
	}
	return (&SQL{DB: db, Dialect: PostgreSQL, Store: store, Path: schema.Schema}).start(ctx, drop)
}

// start makes the schema of the outbox and the publisher.
func (db *SQL) start(ctx context.Context, remove func(context.Context) error) (*SQL, func(context.Context) error, error) {
	leave := func(ctx context.Context) error {
		return errors.Join(db.Store.Close(), db.DB.Close(), remove(ctx))
	}
	err := db.Store.Ensure(ctx)
	if err == nil {
		db.Publisher, err = publisher.New(db.Store, publisher.Config{RequireTx: true}, nil)
	}
	if err != nil {
		return nil, nil, errors.Join(err, leave(context.WithoutCancel(ctx)))
	}
	return db, leave, nil
}

// Show tells the story and checks its result. See Story.Show.
func (db *SQL) Show(ctx context.Context, out io.Writer, story Story) error {
	return story.Show(ctx, out, db.Store, func(ctx context.Context) ([]string, error) { return Sold(ctx, db.DB) })
}
