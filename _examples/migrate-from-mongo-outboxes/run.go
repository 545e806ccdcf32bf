package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/outmill/outmill"
	outmillmongo "github.com/outmill/outmill/mongo"
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	opened, err := outmill.Open(ctx, o.store, nil)
	if err != nil {
		return fmt.Errorf("-store: %w", err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	store, is := opened.(*outmillmongo.Store)
	if !is {
		return fmt.Errorf("-store: the outbox is a %T: want one on MongoDB", opened)
	}
	m := newMover(o, store, func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) })
	began := time.Now()
	err = m.run(ctx)
	c := m.counts
	m.out("moved=%d repeated=%d leased=%d dead=%d malformed=%d seconds=%.1f", c.moved, c.repeated, c.leased, c.dead, c.malformed,
		time.Since(began).Seconds())
	return err
}

func newMover(o settings, store *outmillmongo.Store, out func(string, ...any)) *mover {
	db := store.Client().Database(cmp.Or(o.database, store.Database().Name()), options.Database().SetWriteConcern(writeconcern.Majority()))
	m := &mover{o: o, layout: layouts[o.layout], store: store, old: db.Collection(o.collection), out: out, malformed: map[string]bool{}}
	if o.archive != "" {
		m.archive = db.Collection(o.archive)
	}
	return m
}

// run makes passes until nothing is left, or, with -follow, until it is stopped.
func (m *mover) run(ctx context.Context) error {
	quiet := time.Now()
	for {
		moved, err := m.pass(ctx)
		if err != nil {
			return m.stopped(ctx, err)
		}
		if moved > 0 {
			m.out("moved %d, so far %d", moved, m.counts.moved)
			quiet = time.Now()
			continue
		}
		if !m.o.follow && m.counts.leased == 0 {
			return m.left()
		}
		if !m.o.follow && time.Since(quiet) > m.o.patience {
			return fmt.Errorf("%d documents are still leased by old workers after %s", m.counts.leased, m.o.patience)
		}
		select {
		case <-ctx.Done():
			return m.stopped(ctx, ctx.Err())
		case <-time.After(m.o.every):
		}
	}
}

// stopped returns no failure if the tool had to run until it was stopped.
func (m *mover) stopped(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case m.o.follow:
		return nil
	}
	return fmt.Errorf("stopped before everything was moved: %w", ctx.Err())
}

func (m *mover) left() error {
	if m.counts.malformed > 0 {
		return fmt.Errorf("%d documents could not be moved", m.counts.malformed)
	}
	return nil
}
