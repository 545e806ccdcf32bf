package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill/postgres"
)

type options struct {
	source, store         string
	schema, prefix        string
	topics                topicList
	enveloped, queue      bool
	group                 string
	fromStart             bool
	messages, offsets     string
	key                   string
	skipMalformed         bool
	once                  bool
	idle, patience, every time.Duration
	batch                 int
	verbose               bool
}

// topicList is a flag that may be given more than once.
type topicList []string

func (l *topicList) String() string { return strings.Join(*l, ",") }

func (l *topicList) Set(topic string) error {
	if topic == "" {
		return errors.New("is empty")
	}
	if !slices.Contains(*l, topic) {
		*l = append(*l, topic)
	}
	return nil
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("migrate-from-watermill", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.source, "source", "", "URL of the database with watermill-sql's tables (postgres://…)")
	flags.StringVar(&o.store, "store", "", "URL of the database with the outbox (default: the source)")
	flags.StringVar(&o.schema, "schema", postgres.DefaultSchema, "schema of the outbox: postgres.Config.Schema")
	flags.StringVar(&o.prefix, "table-prefix", "", "prefix of the outbox's tables: postgres.Config.TablePrefix")
	flags.Var(&o.topics, "topic", "topic to move; may be given more than once")
	flags.BoolVar(&o.enveloped, "enveloped", false, "the topics are forwarder topics: move each message to the topic that its envelope names")
	flags.StringVar(&o.group, "consumer-group", "", "consumer group that has read the topics so far")
	flags.BoolVar(&o.fromStart, "from-start", false, "move all messages of a topic that the consumer group has not read at all")
	flags.BoolVar(&o.queue, "queue", false, "the tables are of PostgreSQLQueueSchema: moved rows are marked as acked")
	flags.StringVar(&o.messages, "messages-table", "watermill_%s", "name of the table of a topic")
	flags.StringVar(&o.offsets, "offsets-table", "watermill_offsets_%s", "name of the table of a topic's offsets")
	flags.StringVar(&o.key, "key", "", "metadata that becomes the key of messages that have none (default: no key, no order)")
	flags.BoolVar(&o.skipMalformed, "skip-malformed", false,
		"report messages that cannot be moved, leave their rows where they are, and go on")
	flags.BoolVar(&o.once, "once", false, "stop when nothing is left and nothing has come for -idle (default: run until stopped)")
	flags.DurationVar(&o.idle, "idle", 5*time.Second, "how long nothing must have come for -once")
	flags.DurationVar(&o.patience, "patience", time.Minute,
		"give up when messages that are left do not come, or errors do not pass, for so long")
	flags.DurationVar(&o.every, "progress", 5*time.Second, "time between two lines of progress")
	flags.IntVar(&o.batch, "batch", 500, "messages of one transaction")
	flags.BoolVar(&o.verbose, "v", false, "log what the libraries log")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: topics are given as -topic %[1]s", flags.Arg(0))
	}
	if o.store == "" {
		o.store = o.source
	}
	return o, o.validate()
}

func (o options) validate() error {
	var errs []error
	refuse := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	refuse(o.source == "", "-source is missing: want postgres://user@host:5432/database")
	refuse(len(o.topics) == 0, "-topic is missing: want the forwarder topic, or a topic of watermill-sql")
	refuse(o.queue && o.group != "", "-consumer-group does not go with -queue: a queue has no consumer groups")
	refuse(o.queue && o.fromStart, "-from-start does not go with -queue: all that is not acked is moved")
	refuse(strings.Count(o.messages, "%s") != 1, "-messages-table wants one %s, for the topic")
	refuse(strings.Count(o.offsets, "%s") != 1, "-offsets-table wants one %s, for the topic")
	refuse(o.idle <= 0, "-idle wants a duration above 0")
	refuse(o.patience <= 0, "-patience wants a duration above 0")
	refuse(o.every <= 0, "-progress wants a duration above 0")
	refuse(o.batch < 1 || o.batch > 10_000, "-batch wants 1 to 10000")
	return errors.Join(errs...)
}
