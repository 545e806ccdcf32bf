// Package importmongo moves the documents of other outboxes on MongoDB into the store: those of
// outbox-event-bus (TypeScript), of Koan's CQRS connector and of NServiceBus (.NET). It appends the messages and deletes the
// document in one transaction, so a document is moved exactly once, whenever the move is stopped or killed.
package importmongo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	outmillmongo "github.com/outmill/outmill/mongo"
)

// Options select the documents to move.
type Options struct {
	// Layout is EventBus, Koan or NServiceBus: whose documents they are.
	Layout string
	// Database has the old collection; "" is the default of the layout, or the database of the store.
	Database string
	// Collection is the old collection; "" is the default of the layout.
	Collection string
	// Topic and Key are texts in which {a.b} stands for a field; "" is the default of the layout.
	Topic, Key string
	// Archive is a collection of Database that gets the moved documents; "" is none.
	Archive string
	// MaxRetries is that of the old program (EventBus): what failed as often is dead.
	MaxRetries int
	// Dead also moves dead documents. SkipMalformed goes on after a document that cannot be moved.
	Dead, SkipMalformed bool
	// Follow goes on until the context ends.
	Follow bool
	// Every is the time between two looks while there is something to wait for, and Patience the longest
	// wait for what old workers have leased.
	Every, Patience time.Duration
	// Batch is the number of documents of a transaction.
	Batch int
}

// The layouts.
const (
	EventBus    = "outbox-event-bus"
	Koan        = "koan"
	NServiceBus = "nservicebus"
)

// Result counts documents. Leased, Dead and Malformed ones are still in the collection.
type Result struct {
	// Moved were appended. Known were not, because the store had their dedup key.
	Moved, Known            int
	Leased, Dead, Malformed int
}

// Check returns an error if a text of the options is wrong.
func (o Options) Check() error {
	return errors.Join(template(o.Topic).check("--topic"), template(o.Key).check("--key"))
}

func newMover(o Options, store *outmillmongo.Store) *mover {
	l := layouts[o.Layout]
	db := store.Client().Database(cmp.Or(o.Database, l.database, store.Database().Name()),
		options.Database().SetWriteConcern(writeconcern.Majority()))
	m := &mover{
		o: o, layout: l, store: store, old: db.Collection(cmp.Or(o.Collection, l.collection)), malformed: map[string]bool{},
		topic: template(cmp.Or(o.Topic, l.topic)), key: template(cmp.Or(o.Key, l.key)), skipped: func(string, error) {},
	}
	if o.Archive != "" {
		m.archive = db.Collection(o.Archive)
	}
	return m
}

// Waiting counts what a move would move now, and the rest.
func Waiting(ctx context.Context, o Options, store *outmillmongo.Store) (waiting int, rest Result, err error) {
	o.SkipMalformed = true
	m := newMover(o, store)
	list, err := m.survey(ctx)
	return len(list), m.result, err
}

// Move moves the documents, oldest first. It calls progress after each transaction, and skipped for each
// document that it leaves because of SkipMalformed. With an error, the result has what was moved before.
func Move(ctx context.Context, o Options, store *outmillmongo.Store, progress func(Result), skipped func(id string, reason error)) (
	Result, error) {
	m := newMover(o, store)
	m.skipped, m.progress = skipped, progress
	err := m.run(ctx)
	return m.result, err
}

// run makes passes until nothing is left, or, with Follow, until the context ends.
func (m *mover) run(ctx context.Context) error {
	quiet := time.Now()
	for {
		moved, err := m.pass(ctx)
		if err != nil {
			return m.stopped(ctx, err)
		}
		if moved > 0 {
			quiet = time.Now()
			continue
		}
		if !m.o.Follow && m.result.Leased == 0 {
			return m.left()
		}
		if !m.o.Follow && time.Since(quiet) > m.o.Patience {
			return fmt.Errorf("%d documents are still leased by old workers after %s: stop these, or wait until their leases end",
				m.result.Leased, m.o.Patience)
		}
		select {
		case <-ctx.Done():
			return m.stopped(ctx, ctx.Err())
		case <-time.After(m.o.Every):
		}
	}
}

// stopped returns no failure if the move had to run until it was stopped.
func (m *mover) stopped(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case m.o.Follow:
		return nil
	}
	return fmt.Errorf("stopped before everything was moved: %w", ctx.Err())
}

func (m *mover) left() error {
	if m.result.Malformed > 0 {
		return fmt.Errorf("%d documents could not be moved", m.result.Malformed)
	}
	return nil
}
