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
)

// open is outmill.Open for people who cannot add an import.
func open(ctx context.Context, url string) (outmill.Store, error) {
	store, err := outmill.Open(ctx, url, nil)
	var unknown *outmill.UnknownSchemeError
	if errors.As(err, &unknown) {
		return nil, fmt.Errorf("outmill: this tool opens no %s: URLs; it opens %s", unknown.Scheme, strings.Join(unknown.Registered, ", "))
	}
	return store, err
}
