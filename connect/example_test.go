package connect_test

import (
	"context"
	"fmt"

	"github.com/outmill/outmill/connect"
	_ "github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

func ExampleResolve() {
	// In a program: connect.LookupEnv("OUTMILL"), or the application's own settings.
	settings := connect.LookupMap(map[string]string{
		"sources.orders.sqlite.connection_string": "sqlite:orders.db",
		"connection_strings.sqlite":               "sqlite:everything-else.db",
	})

	choice, err := connect.Resolve(connect.Connection{Provider: "sqlite", Source: "orders", Lookup: settings})
	fmt.Println(choice, err)

	choice, err = connect.Resolve(connect.Connection{Provider: "sqlite", Source: "bills", Lookup: settings})
	fmt.Println(choice, err)

	_, err = connect.Resolve(connect.Connection{Provider: "sqlite", Source: "bills", ConnectionString: "main", Lookup: settings})
	fmt.Println(err)
	// Output:
	// sqlite from sources.orders.sqlite.connection_string: sqlite:orders.db <nil>
	// sqlite from connection_strings.sqlite: sqlite:everything-else.db <nil>
	// outmill: invalid configuration: no connection to a store; searched, in this order: Connection.URL, sources.bills.sqlite.connection_string, connection_strings.main; set one of them
}

func ExampleOpen() {
	store, choice, err := connect.Open(context.Background(), connect.Connection{
		Source: "orders",
		Lookup: connect.LookupEnv("OUTMILL"), // OUTMILL_SOURCES_ORDERS_SQLITE_CONNECTION_STRING=sqlite:orders.db?lease=1m
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
