package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/cmd/outmill/internal/importmongo"
	"github.com/outmill/outmill/mongo"
)

// importingMongo has the flags of import koan, nservicebus and outbox-event-bus.
type importingMongo struct {
	target
	output
	term   terminal
	dryRun bool
	config importmongo.Options
}

func importOutboxEventBus(term terminal) *cobra.Command {
	i := &importingMongo{term: term, config: importmongo.Options{Layout: importmongo.EventBus}}
	cmd := &cobra.Command{
		Use:   "outbox-event-bus [URL | --source NAME]",
		Short: "Move the events of a MongoDB collection of outbox-event-bus",
		Long: `Moves the events of outbox-event-bus (TypeScript) from its collection on the same MongoDB
into the store: those that are created or failed, and active ones whose keepAlive is older
than their expireInSeconds. The message id is the eventId, the topic the type, and the
payload what JSON.stringify makes of the event's payload.
` + importMongoHelp,
		Example: "  outmill import outbox-event-bus 'mongodb://host/shop?replicaSet=rs0' --key '{payload.userId}'",
	}
	i.flags(cmd, "that of the store", "outbox_events", "{type}", "none")
	cmd.Flags().IntVar(&i.config.MaxRetries, "max-retries", 5, "maxRetries of the old program: what failed this `NUMBER` of times is dead")
	return does(cmd, func(ctx context.Context, args []string) error { return i.run(ctx, cmd, args) })
}

func importKoan(term terminal) *cobra.Command {
	i := &importingMongo{term: term, config: importmongo.Options{Layout: importmongo.Koan}}
	cmd := &cobra.Command{
		Use:   "koan [URL | --source NAME]",
		Short: "Move the entries of a MongoDB collection of Koan's outbox",
		Long: `Moves the entries of Koan's CQRS outbox (.NET) from its collection on the same MongoDB into
the store: those that are Pending and not leased. The message id is the _id, the topic the
EntityType, the key the EntityId, the payload PayloadJson, and a DedupKey stays one.
` + importMongoHelp,
		Example: "  outmill import koan 'mongodb://host/shop?replicaSet=rs0' --database Koan",
	}
	i.flags(cmd, "Koan", "Outbox", "{EntityType}", "{EntityId}")
	return does(cmd, func(ctx context.Context, args []string) error { return i.run(ctx, cmd, args) })
}

func importNServiceBus(term terminal) *cobra.Command {
	i := &importingMongo{term: term, config: importmongo.Options{Layout: importmongo.NServiceBus}}
	cmd := &cobra.Command{
		Use:   "nservicebus [URL | --source NAME]",
		Short: "Move the messages of NServiceBus's outbox collection on MongoDB",
		Long: `Moves the messages that NServiceBus's MongoDB outbox (.NET) has stored and not dispatched from
its collection on the same MongoDB into the store: each of the TransportOperations of the
documents without Dispatched. The message id is the MessageId, the topic the first of the
EnclosedMessageTypes, the payload the Body, and the headers are metadata. A document with a
delayed message cannot be moved. Stop the endpoints first: a document says that a message
was handled, so one that comes again later is handled again.
` + importMongoHelp,
		Example: "  outmill import nservicebus 'mongodb://host/shop?replicaSet=rs0' --collection outboxrecord",
	}
	i.flags(cmd, "that of the store", "outboxrecord", "the first type", "none")
	return does(cmd, func(ctx context.Context, args []string) error { return i.run(ctx, cmd, args) })
}

const importMongoHelp = `
The message is appended and the document is deleted in one transaction, the oldest first,
so you may interrupt the command and run it again. Let the programs publish to the store,
stop the old workers, and run it; it waits for documents that they have leased. --follow
goes on while old programs still write. A document that cannot be moved stops it, or is
left with --skip-malformed.`

func (i *importingMongo) flags(cmd *cobra.Command, database, collection, topic, key string) {
	i.target.flags(cmd)
	i.output.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&i.config.Database, "database", "", "the `DATABASE` of the old collection (default: "+database+")")
	flags.StringVar(&i.config.Collection, "collection", "", "the old `COLLECTION` (default: "+collection+")")
	flags.StringVar(&i.config.Topic, "topic", "", "the topic of a message: a `TEXT` in which {a.b} stands for a field (default: "+topic+")")
	flags.StringVar(&i.config.Key, "key", "", "the key of a message, a `TEXT` like that of --topic (default: "+key+")")
	flags.StringVar(&i.config.Archive, "archive", "",
		"keep the moved documents in this `COLLECTION` of the same database (default: they are gone)")
	flags.BoolVar(&i.config.Dead, "dead", false, "also move dead documents, which are then delivered again")
	flags.BoolVar(&i.config.SkipMalformed, "skip-malformed", false, "report and leave documents that cannot be moved, and go on")
	flags.BoolVar(&i.config.Follow, "follow", false, "go on until stopped, for programs that still write to the old collection")
	flags.DurationVar(&i.config.Every, "every", time.Second, "the `TIME` between two looks while there is something to wait for")
	flags.DurationVar(&i.config.Patience, "wait", 2*time.Minute, "wait this `TIME` for documents that old workers have leased")
	flags.IntVar(&i.config.Batch, "batch-size", 200, "move this `NUMBER` of documents in a transaction")
	flags.BoolVar(&i.dryRun, "dry-run", false, "only count the documents")
}

func (i *importingMongo) check() error {
	switch o := i.config; {
	case o.Every <= 0:
		return usagef("--every is %s: want a time of more than 0", o.Every)
	case o.Patience < 0:
		return usagef("--wait is %s: want a time of 0 or more", o.Patience)
	case o.Batch < 1 || o.Batch > 10_000:
		return usagef("--batch-size is %d: want 1 to 10000", o.Batch)
	case o.Layout == importmongo.EventBus && o.MaxRetries < 1:
		return usagef("--max-retries is %d: want 1 or more", o.MaxRetries)
	}
	if err := i.config.Check(); err != nil {
		return usagef("%s", err)
	}
	return nil
}

// importedDocuments is the result as JSON.
type importedDocuments struct {
	// Moved were appended; with DryRun, it is how many wait.
	Moved int `json:"moved"`
	// Known had a dedup key that the store knew.
	Known int `json:"known"`
	// Leased, Dead and Malformed are still in the collection.
	Leased    int  `json:"leased"`
	Dead      int  `json:"dead"`
	Malformed int  `json:"malformed"`
	DryRun    bool `json:"dry_run"`
}

func (i *importingMongo) run(ctx context.Context, cmd *cobra.Command, args []string) error {
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
	return i.with(ctx, url, func(store opened) error {
		to, ok := outmill.As[*mongo.Store](store.Store)
		if !ok || store.several {
			return usagef("the outbox of %s is not one on MongoDB: the documents and the store must be on one server", store.shown)
		}
		report, err := i.move(ctx, to)
		if err != nil {
			err = fmt.Errorf("outmill: import %s into %s: %w", i.config.Layout, store.shown, err)
		}
		if asJSON {
			return errors.Join(printJSON(cmd.OutOrStdout(), report), err)
		}
		return errors.Join(report.print(cmd), err)
	})
}

func (i *importingMongo) move(ctx context.Context, to *mongo.Store) (importedDocuments, error) {
	waiting, rest, err := importmongo.Waiting(ctx, i.config, to)
	if err != nil || i.dryRun {
		return importedDocuments{waiting, 0, rest.Leased, rest.Dead, rest.Malformed, i.dryRun}, err
	}
	progress := newProgress(i.term.err, "moved", waiting)
	defer progress.end()
	r, err := importmongo.Move(ctx, i.config, to, func(r importmongo.Result) { progress.show(r.Moved + r.Known) },
		func(id string, reason error) { _, _ = fmt.Fprintf(i.term.err, "skipped %s: %v\n", id, reason) })
	return importedDocuments{r.Moved, r.Known, r.Leased, r.Dead, r.Malformed, false}, err
}

func (r importedDocuments) print(cmd *cobra.Command) error {
	if err := (imported{Moved: r.Moved, Known: r.Known, DryRun: r.DryRun}).print(cmd); err != nil {
		return err
	}
	for _, left := range []struct {
		n    int
		text string
	}{
		{r.Leased, "leased by old workers"}, {r.Dead, "dead (--dead moves them too)"}, {r.Malformed, "of a form that cannot be moved"},
	} {
		if left.n == 0 {
			continue
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Left in the collection, %s: %s.\n", left.text, count(left.n, "document")); err != nil {
			return err
		}
	}
	return nil
}
