package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/outmill/outmill"

	// The stores that the tool can open register themselves.
	_ "github.com/outmill/outmill/mongo"
	_ "github.com/outmill/outmill/postgres"
	_ "github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/sqlserver"
)

// open is outmill.Open for people who cannot add an import.
func open(ctx context.Context, url string) (outmill.Store, error) {
	store, err := outmill.Open(ctx, url, nil)
	var unknown *outmill.InvalidURLError
	if errors.As(err, &unknown) && len(unknown.Registered) > 0 {
		return nil, fmt.Errorf("outmill: this tool cannot open %q: it opens URLs that begin with %s", unknown.URL, strings.Join(unknown.Registered, ", "))
	}
	return store, err
}

// endOf is how the store's own shell wants a statement to end.
func endOf(store outmill.Store) func(statement string) string {
	if _, is := store.(*sqlserver.Store); is {
		return asBatch
	}
	return terminated
}
