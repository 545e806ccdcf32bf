package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

var schema = command{
	name:     "schema",
	synopsis: "[-ensure | -from VERSION] [-source NAME | URL]",
	summary:  "print a store's schema for the engine's shell, or create it",
	help: `Prints the statements of the schema, for a migration tool or the engine's own
shell. They are not run; but the database is opened, and SQLite makes a file
that does not exist. sqlite::memory: prints the same without a file:

    outmill schema sqlite::memory: | sqlite3 orders.db
    outmill schema 'mongodb://host/shop?replicaSet=rs0' | mongosh shop
    outmill schema 'sqlserver://user:password@host?database=shop' | sqlcmd -S host -d shop -b

Without a URL it takes that of a source from the environment, which keeps a password out
of the list of processes:

    OUTMILL_SOURCES_ORDERS_POSTGRES_CONNECTION_STRING=postgres://… outmill schema -source orders

With -from it prints what brings a schema of that version to the newest one, and
nothing where it is the newest. A schema's version is in its table meta (SELECT
version FROM outmill.meta on PostgreSQL, for example); 0 is an empty database:

    outmill schema -from 1 postgres://host/shop | psql shop

With -ensure it creates the schema, or brings it up to date, itself. That is safe
to repeat, and while programs use the store.`,
	prepare: func(flags *flag.FlagSet) action {
		ensure := flags.Bool("ensure", false, "create the schema or bring it up to date instead of printing it")
		source := flags.String("source", "",
			"take the URL from OUTMILL_SOURCES_<`NAME`>_<PROVIDER>_CONNECTION_STRING (default: default, where no URL is named)")
		from := flags.Int("from", 0, "print only what brings a schema of this `VERSION` to the newest one")
		return func(ctx context.Context, args []string, stdout io.Writer) error {
			return runSchema(ctx, args, *source, *ensure, *from, stdout)
		}
	},
}

func runSchema(ctx context.Context, args []string, source string, ensure bool, from int, stdout io.Writer) (err error) {
	if ensure && from != 0 {
		return usageError("-ensure finds the version of the schema itself: want it without -from")
	}
	store, shown, err := open(ctx, args, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if !ensure {
		statements, err := store.StatementsFrom(from)
		if err != nil {
			return err
		}
		return printStatements(statements, endOf(store), stdout)
	}
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "The schema in %s is up to date.\n", shown)
	return err
}

func printStatements(statements []string, end func(string) string, stdout io.Writer) error {
	for i, statement := range statements {
		if i > 0 {
			statement = "\n" + statement
		}
		if _, err := fmt.Fprintln(stdout, end(statement)); err != nil {
			return fmt.Errorf("outmill: print the schema: %w", err)
		}
	}
	return nil
}

// terminated puts the semicolon where a comment at the end cannot swallow it.
func terminated(statement string) string {
	statement = strings.TrimRight(statement, "; \t\r\n")
	lastLine := statement[strings.LastIndexByte(statement, '\n')+1:]
	if strings.Contains(lastLine, "--") {
		return statement + "\n;"
	}
	return statement + ";"
}

// asBatch ends a T-SQL batch, which may hold semicolons of its own.
func asBatch(statement string) string {
	return strings.TrimRight(statement, " \t\r\n") + "\nGO"
}
