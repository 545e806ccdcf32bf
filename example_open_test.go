package outmill_test

import (
	"context"
	"fmt"

	"github.com/outmill/outmill"
	// The import makes outmill.Open and outmill.Resolve know the store.
	_ "github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

func ExampleOpen() {
	ctx := context.Background()
	store, err := outmill.Open(ctx, "sqlite::memory:", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Append(ctx, &outmill.Record{Topic: "orders", Payload: []byte(`{"order":17}`)}); err != nil {
		fmt.Println(err)
		return
	}
	records, err := store.List(ctx, outmill.ListQuery{Topic: "orders"})
	for _, rec := range records {
		fmt.Println(rec.Status, string(rec.Payload))
	}
	fmt.Println(err)
	// Output:
	// pending {"order":17}
	// <nil>
}

func ExampleResolve() {
	// In a program: outmill.LookupEnv("OUTMILL"), or the application's own settings.
	settings := outmill.LookupMap(map[string]string{
		"sources.orders.sqlite.connection_string": "sqlite:orders.db",
		"connection_strings.sqlite":               "sqlite:everything-else.db",
	})

	choice, err := outmill.Resolve(outmill.Connection{Provider: "sqlite", Source: "orders", Lookup: settings})
	fmt.Println(choice, err)

	choice, err = outmill.Resolve(outmill.Connection{Provider: "sqlite", Source: "bills", Lookup: settings})
	fmt.Println(choice, err)

	_, err = outmill.Resolve(outmill.Connection{Provider: "sqlite", Source: "bills", ConnectionString: "main", Lookup: settings})
	fmt.Println(err)
	// Output:
	// sqlite from sources.orders.sqlite.connection_string: sqlite:orders.db <nil>
	// sqlite from connection_strings.sqlite: sqlite:everything-else.db <nil>
	// outmill: invalid configuration: no connection to a store; looked at, in this order: Connection.URL, sources.bills.sqlite.connection_string, connection_strings.main; set one of them
}

func ExampleOpenConnection() {
	store, choice, err := outmill.OpenConnection(context.Background(), outmill.Connection{
		Source: "orders",
		Lookup: outmill.LookupEnv("OUTMILL"), // OUTMILL_SOURCES_ORDERS_SQLITE_CONNECTION_STRING=sqlite:orders.db?lease=1m
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	// What the program sets wins over the URL, which wins over the defaults.
	cfg := subscriber.Config{Group: "billing"}.WithDefaults(choice.Defaults)
	_, _ = subscriber.New(store, cfg, nil)
}
