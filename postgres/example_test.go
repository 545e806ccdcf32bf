package postgres_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

// A program that has a *sql.DB, such as one that used watermill-sql, gives it to the store.
func ExampleNewFromDB() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)

	store, err := postgres.NewFromDB(db, postgres.Config{EnsureSchema: true}, nil)
	if err != nil {
		log.Fatal(err)
	}
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		log.Fatal(err)
	}
	place := func(tx *sql.Tx, msg *message.Message) error {
		return pub.WithContext(store.WithTx(ctx, tx)).Publish("orders", msg)
	}
	_ = place

	sub, err := subscriber.New(store, subscriber.Config{Group: "billing", Order: outmill.OrderTopic}, nil)
	if err != nil {
		log.Fatal(err)
	}
	_ = sub // for the router

	_ = store.Close() // db stays open
}
