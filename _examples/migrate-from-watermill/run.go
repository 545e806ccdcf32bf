package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outmill/outmill/postgres"
)

// dedupWindow is how long a move between two databases is remembered. It is long because the tool
// may be started again after a weekend.
const dedupWindow = 7 * 24 * time.Hour

// run runs the tool until ctx ends, which is no error, whenever that is.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := move(ctx, o, stdout, stderr); ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func move(ctx context.Context, o options, stdout, stderr io.Writer) error {
	logger := newLogger(o.verbose, stderr)
	db, err := openSource(o.source)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	store, atomic, err := openStore(ctx, o, db, logger)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	out := &printer{to: stdout}
	out.line("%s", howSafe(atomic))
	movers, err := newMovers(ctx, o, db, store, atomic, out, logger)
	if err != nil {
		return err
	}
	return runAll(ctx, o, movers, out)
}

func newLogger(verbose bool, stderr io.Writer) watermill.LoggerAdapter {
	if !verbose {
		return watermill.NopLogger{}
	}
	// The level is not trace, because watermill-sql logs payloads at trace.
	return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

func openSource(url string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("-source: %w", err)
	}
	return stdlib.OpenDB(*config), nil
}

// openStore lets the store adopt the transactions of watermill-sql's
// subscriber, but only where these are transactions of its own database.
func openStore(ctx context.Context, o options, source *sql.DB, logger watermill.LoggerAdapter) (store *postgres.Store, atomic bool,
	err error) {
	config := postgres.Config{Schema: o.schema, TablePrefix: o.prefix, DedupWindow: dedupWindow}
	store, err = postgres.Open(ctx, o.store, config, logger)
	if err != nil {
		return nil, false, fmt.Errorf("-store: %w", err)
	}
	atomic, err = sameDatabase(ctx, source, store.Pool())
	if err != nil || !atomic {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
		return store, false, err
	}
	if err := store.Close(); err != nil {
		return nil, false, err
	}
	config.TxFromContext = postgres.Adopt(wsql.TxFromContext)
	store, err = postgres.Open(ctx, o.store, config, logger)
	return store, true, err
}

func howSafe(atomic bool) string {
	if atomic {
		return "source and store are one database: each message is moved exactly once"
	}
	return "source and store are two databases: a message that is moved again after a crash is recognised for 7 days"
}

func newMovers(ctx context.Context, o options, db *sql.DB, store *postgres.Store, atomic bool, out *printer,
	logger watermill.LoggerAdapter) ([]*mover, error) {
	var movers []*mover
	for _, topic := range o.topics {
		m, err := newMover(o, topic, db, store, atomic, out, logger)
		if err == nil {
			err = m.table.check(ctx, db, o.fromStart)
		}
		if err != nil {
			return nil, err
		}
		movers = append(movers, m)
	}
	return movers, nil
}

// runAll ends with the first mover that fails, or when all are done.
func runAll(ctx context.Context, o options, movers []*mover, out *printer) error {
	began := time.Now()
	moving, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	errs := make([]error, len(movers))
	for i, m := range movers {
		working.Go(func() {
			if errs[i] = m.run(moving); errs[i] != nil {
				stop()
			}
		})
	}
	var reporting sync.WaitGroup
	reporting.Go(func() { reportUntil(moving, movers, o.every, out) })
	working.Wait()
	stop()
	reporting.Wait()
	summary(ctx, movers, time.Since(began), out)
	err := errors.Join(errs...)
	if err == nil && o.once && ctx.Err() != nil {
		err = errors.New("stopped before everything was moved")
	}
	return err
}
