package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// defaultBatchSize is larger than that of the library, because the process does nothing else.
const defaultBatchSize = 500

// forwarding has the flags of forward.
type forwarding struct {
	target
	term        terminal
	to          string
	topicPrefix string
	keyPolicy   string
	logLevel    string
	logFormat   string
	listen      string
	memoryLimit bytesValue
	ensure      bool
	once        bool
	maxAttempts int
	config      forwarder.Config
}

func forwardCommand(term terminal) *cobra.Command {
	f := &forwarding{term: term}
	cmd := &cobra.Command{
		Use:   "forward [URL | --source NAME] --to BROKER",
		Short: "Forward committed records to Kafka or NATS JetStream, as a daemon",
		Long: `Moves committed records from a store to a broker until it is stopped. On SIGTERM or
SIGINT it finishes the publish in progress, stores the acks, releases the other records
and exits with 0. Delivery is at least once; the messages of a topic and key keep their
order.

A new group takes what waits for a first group only after its broker has answered once.
If it has not answered when you stop the command by SIGINT (Ctrl-C), or at the end of
--once, the command drops its new group as groups drop does. After SIGTERM, by which
services are stopped, the group stays, so that the next start forwards what it got.

--to names the broker:

  kafka://HOST:PORT[,HOST:PORT…]  Kafka; kafkas:// uses TLS. A user and a password in
                                  front of the host log in with PLAIN, or with the
                                  parameter sasl=scram-sha-256 or sasl=scram-sha-512.
                                  Further parameters: compression, client_id,
                                  create_topics, delivery_timeout.
  nats://HOST:PORT[,…]            NATS JetStream; tls:// uses TLS. A topic is a subject,
                                  for which a stream must exist.
  memory:[PORT]                   a Kafka in this process, for trials: its messages are
                                  lost when it ends

Each flag may also be set by a variable (--batch-size by OUTMILL_FORWARD_BATCH_SIZE; lists
have commas between their entries) or in the file of --config, in this order. The file is
YAML with the names of the flags, and may have url, or a set of tenants: then the records
of all of them are forwarded. tenants is a list of entries with key and url. discover asks
for them, now and then (every, by default 5m) and on SIGHUP, so that a tenant that comes or
goes needs no restart. It has one of these:

  query      a SQL statement (sql) that returns the key and the URL of each tenant
  schemas    the schemas of a PostgreSQL database whose names match a pattern
  databases  the databases of a MongoDB whose names match a pattern

each with the url to ask, or source, the name of a URL in the environment. max-connections,
parallel and max-idle are limits of the set. docs/cli.md has examples.

The listener of --listen answers /healthz, which fails only where a restart helps,
/readyz, which fails while the store or the broker cannot be reached or a call has failed for
a minute, and /metrics in
the format of Prometheus.`,
		Example: `  outmill forward sqlite:orders.db --to memory:
  outmill forward sqlite:orders.db --to kafka://localhost:9092 --topic 'orders.*'
  OUTMILL_SOURCES_SHOP_POSTGRES_CONNECTION_STRING=postgres://… outmill forward --source shop --to nats://localhost:4222
  outmill forward --config forward.yaml`,
	}
	f.flags(cmd)
	return does(cmd, func(ctx context.Context, args []string) error { return f.run(ctx, cmd, args) })
}

func (f *forwarding) flags(cmd *cobra.Command) {
	f.sourceFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.configFile, "config", "", "read settings, and the store or the tenants, from this `FILE`")
	flags.StringVar(&f.to, "to", "", "the `BROKER` to publish to (required)")
	flags.StringVar(&f.config.Group, "group", forwarder.DefaultGroup, "the forwarder's `GROUP`; forwarders of one group share the records")
	flags.StringArrayVar(&f.config.Topics.Include, "topic", nil, "forward this `TOPIC`; * stands for any text; may be repeated (default all)")
	flags.StringArrayVar(&f.config.Topics.Exclude, "exclude-topic", nil, "do not forward this `TOPIC`; may be repeated")
	flags.StringVar(&f.topicPrefix, "topic-prefix", "", "put this `TEXT` in front of each topic at the broker")
	flags.BoolVar(&f.config.Unordered, "unordered", false, "give up the order of keys: claims are cheaper")
	flags.StringVar(&f.keyPolicy, "key-policy", "block", "the `POLICY` for the records behind a failing one of their key: block, skip or park")
	flags.IntVar(&f.config.BatchSize, "batch-size", 0, "the largest `NUMBER` of records of one claim (default 500, or that of the URL)")
	flags.DurationVar(&f.config.Lease, "lease", 0, "the `TIME` for which a claim leases a record (default 30s, or that of the URL)")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0,
		"the `NUMBER` of attempts before a record goes dead; negative is no limit (default 10, or that of the URL)")
	flags.DurationVar(&f.config.PollInterval, "poll-interval", 0, "the longest `TIME` between two looks while nothing is due (default 500ms)")
	flags.DurationVar(&f.config.CloseTimeout, "close-timeout", 0, "the `TIME` that a stop waits for the publish in progress (default 10s)")
	flags.BoolVar(&f.ensure, "ensure", false, "create the schema or bring it up to date first")
	flags.BoolVar(&f.once, "once", false, "forward the due records, and end")
	flags.StringVar(&f.listen, "listen", "", "serve /healthz, /readyz and /metrics at this `ADDRESS`, such as :8080 (default: nowhere)")
	flags.Var(&f.memoryLimit, "memory-limit",
		"the `BYTES` of the soft memory limit, such as 256MiB (default nine tenths of the container's limit)")
	flags.StringVar(&f.logLevel, "log-level", "info", "log from this `LEVEL` on: debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "the `FORMAT` of log lines: text or json")
	for name, words := range map[string][]string{
		"key-policy": {"block", "skip", "park"}, "log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

func (f *forwarding) run(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
	store, logger, err := f.prepare(ctx, cmd, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	defer refreshOnHangup(ctx, store.discovered, logger)()
	if f.ensure {
		if err := store.Ensure(ctx); err != nil {
			return err
		}
	}
	broker, err := openDestination(f.to, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.close()) }()
	config := f.config.WithDefaults(store.defaults)
	if config.BatchSize == 0 {
		config.BatchSize = defaultBatchSize
	}
	var measured *measurements
	if f.listen != "" && !f.once {
		if measured, err = measure(&store, &broker); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, measured.close()) }()
	}
	fwd, err := forwarder.New(store.Store, broker.Publisher, config, logger)
	if err != nil {
		return err
	}
	fields := watermill.LogFields{"store": store.shown, "to": broker.shown, "group": f.config.Group, "version": version()}
	if limit := tuneMemory(int64(f.memoryLimit)); limit > 0 {
		fields["memory_limit"] = limit
	}
	logger.Info("Forwarding", fields)
	tried := newTrial(ctx, store, f.config.Group, logger)
	if f.once {
		defer tried.end(ctx)
		if err := f.forwardOnce(ctx, fwd, logger); err != nil {
			return errors.Join(store.remedy(err), leftOut(store))
		}
		return leftOut(store, tenants.StateFailing)
	}
	err = f.serve(ctx, fwd, store, broker, measured, logger)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		tried.end(ctx)
	}
	return store.remedy(err)
}

// prepare reads all settings and opens the store or the set of tenants.
func (f *forwarding) prepare(ctx context.Context, cmd *cobra.Command, args []string) (opened, watermill.LoggerAdapter, error) {
	if f.configFile == "" {
		f.configFile = os.Getenv(forwardEnvironment + "CONFIG")
	}
	file, err := readSettings(f.configFile)
	if err != nil {
		return opened{}, nil, err
	}
	if err := fill(cmd.Flags(), file, f.configFile, os.LookupEnv); err != nil {
		return opened{}, nil, err
	}
	if f.listens = true; f.ensure {
		f.files, f.ensures = created, true
	}
	url, _, err := f.take(args)
	if err != nil {
		return opened{}, nil, err
	}
	if err := f.check(); err != nil {
		return opened{}, nil, err
	}
	logger, err := newLogger(f.term, f.logLevel, f.logFormat)
	if err != nil {
		return opened{}, nil, err
	}
	f.settings = file
	store, err := f.open(ctx, url, logger)
	return store, logger, err
}

func (f *forwarding) check() error {
	if f.to == "" {
		return usagef("--to is missing: want %s", destinations)
	}
	policies := map[string]outmill.KeyPolicy{"block": outmill.KeyBlock, "skip": outmill.KeySkip, "park": outmill.KeyPark}
	policy, found := policies[f.keyPolicy]
	if !found {
		return usagef("--key-policy is %q: want block, skip or park", f.keyPolicy)
	}
	f.config.KeyPolicy = policy
	f.config.Retry.MaxAttempts = f.maxAttempts
	if prefix := f.topicPrefix; prefix != "" {
		f.config.MapTopic = func(topic string, _ *message.Message) string { return prefix + topic }
	}
	return nil
}

func newLogger(term terminal, level, format string) (watermill.LoggerAdapter, error) {
	var from slog.Level
	if err := from.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level is %q: want debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: from}
	switch format {
	case "text":
		return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(term.log(), options))), nil
	case "json":
		return watermill.NewSlogLogger(slog.New(slog.NewJSONHandler(term.log(), options))), nil
	}
	return nil, usagef("--log-format is %q: want text or json", format)
}

func (f *forwarding) forwardOnce(ctx context.Context, fwd *forwarder.Forwarder, logger watermill.LoggerAdapter) error {
	n, err := fwd.Once(ctx)
	logger.Info("Forwarded the due records", watermill.LogFields{"messages": n})
	return errors.Join(err, fwd.Close())
}

// serve forwards until ctx ends, and answers the probes and the scrapes of metrics.
func (f *forwarding) serve(ctx context.Context, fwd *forwarder.Forwarder, store opened, broker destination, measured *measurements,
	logger watermill.LoggerAdapter,
) error {
	ended := make(chan struct{})
	if f.listen != "" {
		mux := http.NewServeMux()
		f.health(fwd, store, broker, ended).register(mux)
		if err := measured.register(mux, fwd); err != nil {
			return err
		}
		at, stop, err := serve(ctx, f.listen, mux)
		if err != nil {
			return err
		}
		defer stop()
		logger.Info("Serving /healthz, /readyz and /metrics", watermill.LogFields{"address": at})
	}
	began := time.Now()
	err := fwd.Run(ctx)
	close(ended)
	logger.Info("Stopped forwarding", watermill.LogFields{"after": time.Since(began).Round(time.Millisecond).String()})
	return err
}

func (f *forwarding) health(fwd *forwarder.Forwarder, store opened, broker destination, ended <-chan struct{}) health {
	return health{
		calls: fwd.FailingCalls,
		alive: func() error {
			select {
			case <-ended:
				return errors.New("the forwarder has ended")
			default:
				return nil
			}
		},
		checks: map[string]func(ctx context.Context) error{
			"forwarder": func(context.Context) error {
				select {
				case <-fwd.Running():
					return nil
				default:
					return fmt.Errorf("the forwarder has not begun")
				}
			},
			"store": func(ctx context.Context) error {
				// Another process could do no more for a tenant whose store is away.
				if _, err := store.Groups(ctx); storekit.NoneAnswered(err) {
					return err
				}
				return nil
			},
			"broker": broker.ping,
		},
	}
}
