package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	// The driver of the source.
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/cmd/outmill/internal/importsql"
	"github.com/outmill/outmill/mysql"
)

// importFrom is the variable that has the URL of the source.
const importFrom = environment + "_IMPORT_FROM"

func importCommand(term terminal) *cobra.Command {
	return family(&cobra.Command{
		Use:   "import",
		Short: "Move the messages of other outboxes into a store",
	}, importWatermillSQL(term), importOutboxEventBus(term), importKoan(term), importNServiceBus(term))
}

// importing has the flags of import watermill-sql.
type importing struct {
	target
	output
	term   terminal
	from   string
	dryRun bool
	config importsql.Options
}

func importWatermillSQL(term terminal) *cobra.Command {
	i := &importing{term: term}
	cmd := &cobra.Command{
		Use:   "watermill-sql [URL | --source NAME] --from URL --topic TOPIC",
		Short: "Move the messages that wait in tables of watermill-sql",
		Long: `Appends to the store what a consumer group of watermill-sql has not read yet, and moves
the position of the group, so that its old subscriber does not read it either. The tables
are watermill_TOPIC and watermill_offsets_TOPIC of watermill-sql's schemas for PostgreSQL,
MySQL and MariaDB (version 3 and 4), or those of PostgreSQLQueueSchema. It deletes no row.

You may interrupt it and run it again: each row arrives once, if the second run begins
within the store's dedup window (24 hours by default). As watermill-sql's subscriber it
moves a message only when no older transaction of the server is open; it waits for that.
Stop the old subscriber first, let the programs publish to the
store, and run it a last time when no program writes to the old table any more.`,
		Example: `  outmill import watermill-sql postgres://host/shop --from postgres://host/shop --topic orders --consumer-group billing
  outmill import watermill-sql mysql://host/shop --from mysql://host/shop --topic orders --consumer-group billing
  OUTMILL_IMPORT_FROM=postgres://… outmill import watermill-sql --source shop --topic events --enveloped --dry-run`,
	}
	i.target.flags(cmd)
	i.output.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&i.from, "from", "", "the `URL` of the database with the tables (default: the variable "+importFrom+")")
	flags.StringVar(&i.config.Topic, "topic", "", "the `TOPIC` of watermill-sql (required)")
	flags.StringVar(&i.config.Group, "consumer-group", "", "the consumer `GROUP` of watermill-sql whose messages are moved")
	flags.BoolVar(&i.config.FromStart, "from-start", false, "move all rows if the group has read nothing yet")
	flags.StringVar(&i.config.As, "as", "", "the `TOPIC` in the store (default: the same)")
	flags.BoolVar(&i.config.Enveloped, "enveloped", false, "the messages are envelopes of Watermill's forwarder: unwrap them")
	flags.StringVar(&i.config.KeyFrom, "key-from", "", "take the key from the metadata of this `NAME`")
	flags.StringVar((*string)(&i.config.Delays), "delays", "",
		"what Watermill's delay in the metadata of a row means, as `MODE`: keep or ignore (default: stop in front of a row that would wait)")
	flags.IntVar(&i.config.Batch, "batch-size", 500, "move this `NUMBER` of messages per step")
	flags.DurationVar(&i.config.Wait, "wait", 30*time.Second,
		"wait this `TIME` for older transactions of the server, which hold committed messages up")
	flags.BoolVar(&i.dryRun, "dry-run", false, "only count the messages")
	return does(cmd, func(ctx context.Context, args []string) error { return i.run(ctx, cmd, args) })
}

func (i *importing) check() error {
	if i.from == "" {
		i.from = os.Getenv(importFrom)
	}
	switch {
	case i.from == "":
		return usagef("--from is missing: want the URL of the database with watermill-sql's tables, or the variable %s", importFrom)
	case !i.fromMySQL() && !strings.HasPrefix(i.from, "postgres://") && !strings.HasPrefix(i.from, "postgresql://"):
		return usagef("--from is %q: want a URL that begins with postgres:// or mysql://", outmill.RedactURL(i.from))
	case i.config.Topic == "":
		return usagef("--topic is missing: want a topic of watermill-sql")
	case i.config.Enveloped && i.config.As != "":
		return usagef("--enveloped messages have their own topic: leave out --as")
	case !slices.Contains([]importsql.Delays{importsql.DelaysRefused, importsql.DelaysKept, importsql.DelaysIgnored}, i.config.Delays):
		return usagef("--delays is %q: want keep or ignore", i.config.Delays)
	case i.config.Wait < 0:
		return usagef("--wait is %s: want a time of 0 or more", i.config.Wait)
	case i.config.Batch < 1 || i.config.Batch > 10_000:
		return usagef("--batch-size is %d: want 1 to 10000", i.config.Batch)
	}
	return nil
}

// imported is the result as JSON.
type imported struct {
	// Moved were appended; with DryRun, it is how many wait.
	Moved int `json:"moved"`
	// Known were in the store from an earlier run.
	Known  int  `json:"known"`
	DryRun bool `json:"dry_run"`
}

func (i *importing) run(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
	url, _, err := i.take(args)
	if err != nil {
		return err
	}
	asJSON, err := i.json()
	if err != nil {
		return err
	}
	if err := i.check(); err != nil {
		return err
	}
	i.config.MySQL = i.fromMySQL()
	db, err := i.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return i.with(ctx, url, func(store opened) error {
		report := imported{DryRun: i.dryRun}
		waiting, err := importsql.Waiting(ctx, db, i.config)
		if err != nil {
			return i.explain(err, importsql.Result{})
		}
		if report.Moved = waiting; !i.dryRun {
			progress := newProgress(i.term.err, "moved", waiting)
			result, err := importsql.Move(ctx, db, i.config, store.Store, func(r importsql.Result) { progress.show(r.Moved + r.Known) })
			progress.end()
			if err != nil {
				return i.explain(err, result)
			}
			report.Moved, report.Known = result.Moved, result.Known
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), report)
		}
		return report.print(cmd)
	})
}

func (i *importing) fromMySQL() bool {
	return strings.HasPrefix(i.from, "mysql://") || strings.HasPrefix(i.from, "mariadb://")
}

// open opens the source. On MySQL it waits for a lock for a second, and looks again until --wait has passed.
func (i *importing) open(ctx context.Context) (*sql.DB, error) {
	if !i.fromMySQL() {
		db, err := sql.Open("pgx", i.from)
		if err != nil {
			// The driver's error may show the URL.
			return nil, usagef("--from is no URL of PostgreSQL: want postgres://USER:PASSWORD@HOST:PORT/DATABASE")
		}
		return db, nil
	}
	separator := "?"
	if strings.Contains(i.from, "?") {
		separator = "&"
	}
	store, err := mysql.Open(ctx, i.from+separator+"innodb_lock_wait_timeout=1", mysql.Config{}, nil)
	if err != nil {
		return nil, i.explain(err, importsql.Result{})
	}
	return store.DB(), nil
}

func (i *importing) explain(err error, result importsql.Result) error {
	err = fmt.Errorf("outmill: import topic %s from %s: %w", i.config.Topic, outmill.RedactURL(i.from), err)
	if n := result.Moved + result.Known; n > 0 {
		err = fmt.Errorf("%w\noutmill: %s moved before that; run the same command again to continue", err, count(n, "message"))
	}
	return err
}

func (r imported) print(cmd *cobra.Command) error {
	var err error
	switch {
	case r.DryRun:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s would be moved.\n", count(r.Moved, "message"))
	case r.Known > 0:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s moved; %d were there from an earlier run.\n", count(r.Moved, "message"), r.Known)
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s moved.\n", count(r.Moved, "message"))
	}
	return err
}
