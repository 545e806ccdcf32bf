package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
	"github.com/outmill/outmill/storekit"

	// The stores that the tool can open register themselves.
	_ "github.com/outmill/outmill/mongo"
	_ "github.com/outmill/outmill/postgres"
	_ "github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/sqlserver"
)

// environment is the prefix of the tool's environment variables.
const environment = "OUTMILL"

// target is the store, or the set of tenants, that a command works on.
type target struct {
	source string
	configured
}

func (t *target) flags(cmd *cobra.Command) {
	t.sourceFlag(cmd)
	t.configured.flags(cmd)
}

func (t *target) sourceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.source, "source", "",
		"take the URL from OUTMILL_SOURCES_<`NAME`>_<PROVIDER>_CONNECTION_STRING (without a URL: the source named default)")
}

// take returns the URL in front of the arguments, and the other arguments. The URL is there
// if there are more arguments than the command needs without it.
func (t *target) take(args []string, without int) (url string, rest []string, err error) {
	if err := t.read(); err != nil {
		return "", nil, err
	}
	switch {
	case len(args) == without:
		return "", args, nil
	case len(args) == without+1 && t.source != "":
		return "", nil, usagef("--source takes the URL from the environment: want it without a URL")
	case len(args) == without+1:
		return args[0], args[1:], nil
	case without == 0:
		return "", nil, usagef("want one URL, such as sqlite:orders.db; got %d arguments", len(args))
	default:
		return "", nil, usagef("want a URL, such as sqlite:orders.db, and %d more arguments; got %d", without, len(args))
	}
}

// opened is an open store with the URL for messages, which has no password.
type opened struct {
	outmill.Store
	shown    string
	defaults outmill.WorkerDefaults
}

// open opens the store of the URL, else that of --source, else what the file of --config names,
// else the source named default.
func (t *target) open(ctx context.Context, url string, logger watermill.LoggerAdapter) (opened, error) {
	if url == "" && t.source == "" {
		if t.isSet() {
			return t.openSet(ctx, logger)
		}
		url, t.source = t.settings.URL, t.settings.source()
	}
	conn := connect.Connection{URL: url, Source: t.source, Lookup: connect.LookupEnv(environment)}
	store, choice, err := connect.Open(ctx, conn, logger)
	var unknown *outmill.InvalidURLError
	if errors.As(err, &unknown) && len(unknown.Registered) > 0 {
		return opened{}, fmt.Errorf("outmill: this tool cannot open %q: it opens URLs that begin with %s", unknown.URL,
			strings.Join(unknown.Registered, ", "))
	}
	var missing *connect.ConnectionNotFoundError
	if errors.As(err, &missing) {
		return opened{}, usagef("want one URL, such as sqlite:orders.db, or the variable %s_SOURCES_%s_<PROVIDER>_CONNECTION_STRING",
			environment, strings.ToUpper(cmp.Or(t.source, connect.DefaultSource)))
	}
	if err != nil {
		return opened{}, err
	}
	return opened{Store: store, shown: outmill.RedactURL(choice.URL), defaults: choice.Defaults}, nil
}

// with opens the store of the URL, calls fn and closes the store.
func (t *target) with(ctx context.Context, url string, fn func(store opened) error) (err error) {
	store, err := t.open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return errors.Join(fn(store), leftOut(store.Store))
}

// operator returns the role that finds and changes records by a filter.
func (o opened) operator() (storekit.Operator, error) {
	operator, ok := outmill.As[storekit.Operator](o.Store)
	if !ok {
		return nil, fmt.Errorf("outmill: the store %s finds no records by a filter: name the records by their ids", o.shown)
	}
	return operator, nil
}

// endOf returns the function that ends a statement for the store's own shell.
func endOf(store outmill.Store) func(statement string) string {
	if _, is := store.(*sqlserver.Store); is {
		return asBatch
	}
	return terminated
}
