package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
	outmillmongo "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/mysql"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/sqlserver"
)

// database has the outbox and the table of orders.
type database interface {
	outmill.Store
	createOrders(ctx context.Context) error
	// placeOrders writes the orders and calls publish in one transaction. If publish fails,
	// the orders are rolled back.
	placeOrders(ctx context.Context, run string, orders []order, publish func(ctx context.Context) error) error
}

// All runs on a kept database share this table.
const (
	createOrders = `CREATE TABLE IF NOT EXISTS quickstart_orders
(run VARCHAR(100), id INTEGER, customer TEXT, cents INTEGER, PRIMARY KEY (run, id))`
	insertOrder = `INSERT INTO quickstart_orders (run, id, customer, cents) VALUES (?, ?, ?, ?)`

	createOrdersTSQL = `IF OBJECT_ID(N'dbo.quickstart_orders', N'U') IS NULL
CREATE TABLE dbo.quickstart_orders (run NVARCHAR(100) NOT NULL, id INT NOT NULL, customer NVARCHAR(100), cents INT, PRIMARY KEY (run, id))`
	insertOrderTSQL = `INSERT INTO dbo.quickstart_orders (run, id, customer, cents) VALUES (@p1, @p2, @p3, @p4)`
)

// openDatabase also returns the name of the database for the output.
func openDatabase(ctx context.Context, opts options, logger watermill.LoggerAdapter) (database, string, func(), error) {
	switch {
	case opts.db != "" && opts.store != "":
		return nil, "", nil, errors.New("-db and -store both name the database: use one of them")
	case opts.db != "":
		db, err := openFile(ctx, opts.db, logger)
		return db, "SQLite: " + opts.db, func() {}, err
	}
	db, choice, err := openNamed(ctx, opts.store, logger)
	if missing := new(connect.ConnectionNotFoundError); !errors.As(err, &missing) {
		return db, "Store:  " + outmill.RedactURL(choice.URL), func() {}, err
	}
	dir, err := os.MkdirTemp("", "outmill-quickstart-")
	if err != nil {
		return nil, "", nil, err
	}
	file := filepath.Join(dir, "orders.db")
	cleanUp := func() { _ = os.RemoveAll(dir) }
	db, err = openFile(ctx, file, logger)
	if err != nil {
		cleanUp()
	}
	return db, "SQLite: " + file, cleanUp, err
}

func openFile(ctx context.Context, file string, logger watermill.LoggerAdapter) (database, error) {
	store, err := sqlite.Open(ctx, file, sqlite.Config{}, logger)
	if err != nil {
		return nil, err
	}
	return sqliteDB{store}, nil
}

// openNamed opens the store that the settings or the URL name. The orders are written with the
// driver of that database.
func openNamed(ctx context.Context, storeURL string, logger watermill.LoggerAdapter) (database, connect.Resolution, error) {
	store, choice, err := connect.Open(ctx, connect.Connection{URL: storeURL, Source: "quickstart", Lookup: connect.LookupEnv("OUTMILL")},
		logger)
	if err != nil {
		return nil, choice, err
	}
	switch store := store.(type) {
	case *sqlite.Store:
		return sqliteDB{store}, choice, nil
	case *postgres.Store:
		return postgresDB{store}, choice, nil
	case *outmillmongo.Store:
		return mongoDB{store}, choice, nil
	case *mysql.Store:
		return mysqlDB{store}, choice, nil
	case *sqlserver.Store:
		return sqlserverDB{store}, choice, nil
	}
	return nil, choice, errors.Join(fmt.Errorf("the quickstart has no table of orders for a %T", store), store.Close())
}

type sqliteDB struct{ *sqlite.Store }

func (db sqliteDB) createOrders(ctx context.Context) error {
	_, err := db.DB().ExecContext(ctx, createOrders)
	return err
}

func (db sqliteDB) placeOrders(ctx context.Context, run string, orders []order, publish func(ctx context.Context) error) error {
	return db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := insertOrders(ctx, tx, insertOrder, run, orders); err != nil {
			return err
		}
		return publish(ctx)
	})
}

func insertOrders(ctx context.Context, tx *sql.Tx, statement, run string, orders []order) error {
	for _, o := range orders {
		if _, err := tx.ExecContext(ctx, statement, run, o.ID, o.Customer, o.Cents); err != nil {
			return err
		}
	}
	return nil
}

type postgresDB struct{ *postgres.Store }

func (db postgresDB) createOrders(ctx context.Context) error {
	_, err := db.Pool().Exec(ctx, createOrders)
	return err
}

func (db postgresDB) placeOrders(ctx context.Context, run string, orders []order, publish func(ctx context.Context) error) error {
	return db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows := pgx.CopyFromSlice(len(orders), func(i int) ([]any, error) {
			o := orders[i]
			return []any{run, o.ID, o.Customer, o.Cents}, nil
		})
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"quickstart_orders"}, []string{"run", "id", "customer", "cents"}, rows); err != nil {
			return err
		}
		return publish(ctx)
	})
}

type mongoDB struct{ *outmillmongo.Store }

func (db mongoDB) orders() *mongo.Collection { return db.Database().Collection("quickstart_orders") }

func (db mongoDB) createOrders(ctx context.Context) error {
	_, err := db.orders().Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "run", Value: 1}, {Key: "id", Value: 1}}})
	return err
}

func (db mongoDB) placeOrders(ctx context.Context, run string, orders []order, publish func(ctx context.Context) error) error {
	documents := make([]bson.D, len(orders))
	for i, o := range orders {
		documents[i] = bson.D{{Key: "run", Value: run}, {Key: "id", Value: o.ID}, {Key: "customer", Value: o.Customer},
			{Key: "cents", Value: o.Cents}}
	}
	return db.InTx(ctx, func(ctx context.Context) error {
		if _, err := db.orders().InsertMany(ctx, documents); err != nil {
			return err
		}
		return publish(ctx)
	})
}

type mysqlDB struct{ *mysql.Store }

func (db mysqlDB) createOrders(ctx context.Context) error {
	_, err := db.DB().ExecContext(ctx, createOrders)
	return err
}

func (db mysqlDB) placeOrders(ctx context.Context, run string, orders []order, publish func(ctx context.Context) error) error {
	return db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := insertOrders(ctx, tx, insertOrder, run, orders); err != nil {
			return err
		}
		return publish(ctx)
	})
}

type sqlserverDB struct{ *sqlserver.Store }

func (db sqlserverDB) createOrders(ctx context.Context) error {
	_, err := db.DB().ExecContext(ctx, createOrdersTSQL)
	return err
}

func (db sqlserverDB) placeOrders(ctx context.Context, run string, orders []order, publish func(ctx context.Context) error) error {
	return db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := insertOrders(ctx, tx, insertOrderTSQL, run, orders); err != nil {
			return err
		}
		return publish(ctx)
	})
}
