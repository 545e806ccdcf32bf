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
shell. It does not run them, but it opens the database, and SQLite creates the
file if it does not exist. sqlite::memory: prints the same without a file:

    outmill schema sqlite::memory: | sqlite3 orders.db
    outmill schema 'mongodb://host/shop?replicaSet=rs0' | mongosh shop
    outmill schema 'sqlserver://user:password@host?database=shop' | sqlcmd -S host -d shop -b

Without a URL it takes the URL of a source from the environment, so that the list of
processes does not show a password:

    OUTMILL_SOURCES_ORDERS_POSTGRES_CONNECTION_STRING=postgres://… outmill schema -source orders

With -from it prints the statements that upgrade a schema of that version to the
newest version, and nothing if it is the newest. The version of a schema is in its
table meta (for example SELECT version FROM outmill.meta on PostgreSQL); 0 is an
empty database:

    outmill schema -from 1 postgres://host/shop | psql shop

With -ensure it creates or upgrades the schema itself. You may repeat this, and run
it while programs use the store.`,
	prepare: func(flags *flag.FlagSet) action {
		ensure := flags.Bool("ensure", false, "create the schema or bring it up to date instead of printing it")
		source := flags.String("source", "",
			"take the URL from OUTMILL_SOURCES_<`NAME`>_<PROVIDER>_CONNECTION_STRING (without a URL: the source named default)")
		from := flags.Int("from", 0, "print only the statements that upgrade a schema of this `VERSION` to the newest version")
		return func(ctx context.Context, args []string, stdout io.Writer) error {
			return runSchema(ctx, args, *source, *ensure, *from, stdout)
		}
	},
}

func runSchema(ctx context.Context, args []string, source string, ensure bool, from int, stdout io.Writer) (err error) {
	if ensure && from != 0 {
		return usageError("-ensure finds the version of the schema itself: leave out -from")
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

// terminated ends a statement with a semicolon, on a line of its own if the last line has a
// comment.
func terminated(statement string) string {
	statement = strings.TrimRight(statement, "; \t\r\n")
	lastLine := statement[strings.LastIndexByte(statement, '\n')+1:]
	if strings.Contains(lastLine, "--") {
		return statement + "\n;"
	}
	return statement + ";"
}

// asBatch ends a T-SQL batch with GO, because a batch may contain semicolons.
func asBatch(statement string) string {
	return strings.TrimRight(statement, " \t\r\n") + "\nGO"
}
