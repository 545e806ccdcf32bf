package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"

	// The stores that the tool can open register themselves.
	_ "github.com/outmill/outmill/mongo"
	_ "github.com/outmill/outmill/postgres"
	_ "github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/sqlserver"
)

// open opens the store of the URL in args, or without one the store of the source in the
// environment. It also returns the URL without its password.
func open(ctx context.Context, args []string, source string) (outmill.Store, string, error) {
	conn := connect.Connection{Source: source, Lookup: connect.LookupEnv(environment)}
	switch {
	case len(args) > 1:
		return nil, "", usageError(fmt.Sprintf("want one URL, such as sqlite:orders.db; got %d arguments", len(args)))
	case len(args) == 1 && source != "":
		return nil, "", usageError("-source takes the URL from the environment: want it without a URL")
	case len(args) == 1:
		conn.URL = args[0]
	}
	store, choice, err := connect.Open(ctx, conn, nil)
	var unknown *outmill.InvalidURLError
	if errors.As(err, &unknown) && len(unknown.Registered) > 0 {
		return nil, "", fmt.Errorf("outmill: this tool cannot open %q: it opens URLs that begin with %s", unknown.URL,
			strings.Join(unknown.Registered, ", "))
	}
	var missing *connect.ConnectionNotFoundError
	if errors.As(err, &missing) {
		return nil, "", usageError(fmt.Sprintf("want one URL, such as sqlite:orders.db, or the variable "+
			"%s_SOURCES_%s_<PROVIDER>_CONNECTION_STRING",
			environment, strings.ToUpper(cmp.Or(source, connect.DefaultSource))))
	}
	return store, outmill.RedactURL(choice.URL), err
}

// environment is the prefix of the tool's environment variables.
const environment = "OUTMILL"

// endOf returns the function that ends a statement for the store's own shell.
func endOf(store outmill.Store) func(statement string) string {
	if _, is := store.(*sqlserver.Store); is {
		return asBatch
	}
	return terminated
}
