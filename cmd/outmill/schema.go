package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
)

func schemaCommand() *cobra.Command {
	return family(&cobra.Command{
		Use:   "schema",
		Short: "Create, print, check and upgrade the schema of a store",
	}, schemaEnsure(), schemaPrint(), schemaStatus(), schemaUpgrade())
}

func schemaEnsure() *cobra.Command {
	return schemaAction("ensure", "Create the schema, or bring it up to date",
		"Creates or upgrades the schema. You may repeat this, and run it while programs use the\nstore.", ensureSchema)
}

func schemaUpgrade() *cobra.Command {
	return schemaAction("upgrade", "Bring a schema that exists up to date",
		`Upgrades the schema as ensure does, but refuses a database that has none, so that a
wrong URL creates nothing.`,
		func(ctx context.Context, store opened, stdout io.Writer) error {
			if _, err := store.Stats(ctx, 1); errors.Is(err, outmill.ErrSchemaMissing) {
				return fmt.Errorf("outmill: %s %s no schema to upgrade: check the URL, or create the schema with: outmill schema ensure %s",
					store.shown, store.verb("has", "have"), store.arguments)
			}
			return ensureSchema(ctx, store, stdout)
		})
}

func ensureSchema(ctx context.Context, store opened, stdout io.Writer) error {
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "The %s in %s %s up to date.\n", store.verb("schema", "schemas"), store.shown, store.verb("is", "are"))
	return err
}

func schemaStatus() *cobra.Command {
	return schemaAction("status", "Check whether the schema fits this version of the tool",
		"Fails with the remedy if the schema is missing, older than this tool wants, or too new\nfor it.",
		func(ctx context.Context, store opened, stdout io.Writer) error {
			if _, err := store.Stats(ctx, 1); err != nil {
				return err
			}
			_, err := fmt.Fprintf(stdout, "The %s in %s %s this version of outmill.\n", store.verb("schema", "schemas"), store.shown,
				store.verb("fits", "fit"))
			return err
		})
}

func schemaAction(name, short, long string, act func(ctx context.Context, store opened, stdout io.Writer) error) *cobra.Command {
	var on target
	if name == "ensure" {
		on.files = created
	}
	cmd := &cobra.Command{Use: name + " [URL | --source NAME]", Short: short, Long: long}
	on.flags(cmd)
	return does(cmd, func(ctx context.Context, args []string) error {
		url, _, err := on.take(args)
		if err != nil {
			return err
		}
		return on.with(ctx, url, func(store opened) error { return act(ctx, store, cmd.OutOrStdout()) })
	})
}

func schemaPrint() *cobra.Command {
	on := target{files: unopened}
	var from int
	cmd := &cobra.Command{
		Use:   "print [URL | --source NAME]",
		Short: "Print the schema as statements for the engine's own shell",
		Long: `Prints the statements of the schema, for a migration tool or the engine's own
shell. It does not run them, but it connects to the database; of SQLite it opens no file.

The output for PostgreSQL, SQLite, MySQL and MariaDB is a migration of goose and of
golang-migrate as it is: its comments tell goose where a statement ends. golang-migrate must
send a file as a whole, which is its default (no x-multi-statement); for MySQL the URL needs
multiStatements=true.

With --from it prints the statements that upgrade a schema of that version to the
newest version, and nothing if it is the newest. The version of a schema is in its
table meta (for example SELECT version FROM outmill.meta on PostgreSQL); 0 is an
empty database.`,
		Example: `  outmill schema print sqlite:orders.db | sqlite3 orders.db
  outmill schema print 'mongodb://host/shop?replicaSet=rs0' | mongosh shop
  outmill schema print 'sqlserver://user:password@host?database=shop' | sqlcmd -S host -d shop -b
  outmill schema print --from 1 postgres://host/shop | psql shop
  outmill schema print postgres://host/shop > migrations/00001_outmill.sql
  outmill schema print postgres://host/shop > migrations/000001_outmill.up.sql`,
	}
	on.flags(cmd)
	cmd.Flags().IntVar(&from, "from", 0, "print only the statements that upgrade a schema of this `VERSION` to the newest version")
	return does(cmd, func(ctx context.Context, args []string) error {
		url, _, err := on.take(args)
		if err != nil {
			return err
		}
		if url == "" && on.source == "" && on.isSet() {
			return on.tenantMissing(ctx, "whose schema is printed, because the stores may be of different kinds")
		}
		return on.with(ctx, url, func(store opened) error {
			statements, err := store.StatementsFrom(from)
			if err != nil {
				return err
			}
			return printStatements(statements, shellOf(store.Store), cmd.OutOrStdout())
		})
	})
}

func printStatements(statements []string, text sqlText, stdout io.Writer) error {
	separator := text.begin
	for _, statement := range statements {
		if _, err := fmt.Fprintln(stdout, separator+text.end(statement)); err != nil {
			return fmt.Errorf("outmill: print the schema: %w", err)
		}
		separator = "\n"
	}
	return nil
}

// sqlText is how the shell of an engine, or a migration tool, reads statements.
type sqlText struct {
	begin string
	end   func(statement string) string
}

// goose is the text of SQL that also goose reads, which splits a file at semicolons unless comments
// say where a statement begins and ends.
var goose = sqlText{begin: "-- +goose Up\n", end: func(statement string) string {
	text := terminated(statement)
	if strings.Count(text, ";") == 1 {
		return text
	}
	return "-- +goose StatementBegin\n" + text + "\n-- +goose StatementEnd"
}}

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
