package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// settings are the flags.
type settings struct {
	store, layout        string
	database, collection string
	topic, key           template
	archive              string
	maxRetries           int
	dead, skipMalformed  bool
	follow               bool
	every, patience      time.Duration
	batch                int
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var o settings
	var topic, key string
	flags := flag.NewFlagSet("migrate-from-mongo-outboxes", flag.ContinueOnError)
	flags.SetOutput(stderr)
	names := strings.Join(slices.Sorted(maps.Keys(layouts)), " or ")
	flags.StringVar(&o.store, "store", "",
		"URL of the outbox, as outmill.Open takes it (mongodb://…/database); the old collection must be on the same server")
	flags.StringVar(&o.layout, "layout", "", "whose documents they are: "+names)
	flags.StringVar(&o.database, "database", "", "database of the old collection (default: that of the outbox; for koan, Koan)")
	flags.StringVar(&o.collection, "collection", "", "the old collection (default outbox_events; for koan, Outbox)")
	flags.StringVar(&topic, "topic", "",
		"topic of a message; {a.b} stands for a field of its document (default {type}; for koan, {EntityType})")
	flags.StringVar(&key, "key", "",
		"key of a message, written like -topic; it has none where a field is missing (default none; for koan, {EntityId})")
	flags.StringVar(&o.archive, "archive", "",
		"collection, in the same database, that keeps the documents that were moved (default: they are gone)")
	flags.IntVar(&o.maxRetries, "max-retries", 5, "maxRetries of the old program: what failed as often is dead")
	flags.BoolVar(&o.dead, "dead", false, "move what is dead as well; it is delivered again")
	flags.BoolVar(&o.skipMalformed, "skip-malformed", false, "report documents that cannot be moved, leave them where they are, and go on")
	flags.BoolVar(&o.follow, "follow", false, "go on until stopped, for programs that still write to the old collection")
	flags.DurationVar(&o.every, "every", time.Second, "time between two looks at the collection, where there is something to wait for")
	flags.DurationVar(&o.patience, "patience", 2*time.Minute, "give up when documents that old workers have leased stay so for so long")
	flags.IntVar(&o.batch, "batch", 200, "documents of one transaction")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err := o.validate(names); err != nil {
		return o, err
	}
	l := layouts[o.layout]
	o.database = cmp.Or(o.database, l.database)
	o.collection = cmp.Or(o.collection, l.collection)
	o.topic, o.key = template(cmp.Or(topic, l.topic)), template(cmp.Or(key, l.key))
	return o, errors.Join(o.topic.check("-topic"), o.key.check("-key"))
}

func (o settings) validate(layoutNames string) error {
	var errs []error
	refuse := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	_, known := layouts[o.layout]
	refuse(o.store == "", "-store is missing: want mongodb://host:27017/database?replicaSet=name")
	refuse(!known, "-layout wants "+layoutNames)
	refuse(o.every <= 0, "-every wants a duration above 0")
	refuse(o.patience <= 0, "-patience wants a duration above 0")
	refuse(o.maxRetries < 1, "-max-retries wants 1 or more")
	refuse(o.batch < 1 || o.batch > 10_000, "-batch wants 1 to 10000")
	return errors.Join(errs...)
}
