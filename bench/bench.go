package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/outmill/outmill/internal/testenv/mysqlengine"
)

// bench is one run of a scenario: its settings, its engines and its results.
type bench struct {
	scenario string
	out      io.Writer
	// progress gets a line for each step of the run.
	progress io.Writer

	n      int
	rounds int
	size   int
	batch  int
	// forwards is the BatchSize of forwarders; 0 is their default.
	forwards int
	short    bool
	json     bool
	only     string
	// handlers is the number of handlers that run at the same time in the scenarios inbox and saga.
	handlers int
	// before is another build of this program, for the scenario consumers.
	before string
	// held is how long transactions stay open in the scenario stall.
	held       time.Duration
	cpuProfile string
	engines    engines
	// postmaster is the first process of PostgreSQL, if it runs on this machine. used says what the last side has used.
	postmaster int
	used       string
	// broker is the process of Kafka, if it runs on this machine.
	broker string

	results results
}

func (b *bench) flags(flags *flag.FlagSet, s scenario) {
	if s.n > 0 {
		flags.IntVar(&b.n, "n", 0, fmt.Sprintf("how many messages (default %d, with -short %d)", s.n, s.short))
	}
	if s.name == "stores" {
		flags.StringVar(&b.only, "only", "", "the one store to measure: sqlite, postgres, mongo, mysql or sqlserver")
	}
	if s.name == "tenants" {
		flags.StringVar(&b.only, "only", "", "the one kind of tenants to measure: sqlite, schemas or databases")
	}
	if s.name == "forward" {
		flags.StringVar(&b.only, "only", "", onlyOurs+": Outmill, and neither the peer nor the limit, for a profile; "+onlyLimit+": by key, and the limit")
	}
	if s.name == "forward-mysql" {
		flags.StringVar(&b.only, "only", "", onlyOurs+": Outmill, and no peer, for a profile")
	}
	if s.name == "consumers" {
		flags.StringVar(&b.only, "only", "", "the one store to measure: mongo")
		flags.StringVar(&b.before, "before", "", "another build of this program, to measure in the same run")
	}
	if s.name == "stall" {
		flags.DurationVar(&b.held, "held", 0, fmt.Sprintf("how long transactions stay open (default %s, with -short %s)", defaultHeld, shortHeld))
	}
	if s.name == "inbox" || s.name == "saga" {
		flags.IntVar(&b.handlers, "handlers", handlersAtOnce, "how many handlers run at a time")
	}
	flags.IntVar(&b.rounds, "rounds", 0, "how often each side runs (default 3, with -short 1)")
	flags.IntVar(&b.size, "size", 200, "bytes of a payload")
	flags.IntVar(&b.batch, "batch", 0, "records of one claim (default 500; forwarders: what they take by default, which grows)")
	flags.BoolVar(&b.short, "short", false, "little of everything, to see that it works; the numbers mean nothing")
	flags.BoolVar(&b.json, "json", false, "one object on the last line")
	flags.StringVar(&b.cpuProfile, "cpuprofile", "",
		"write CPU profiles of this process to FILE.FIELD, one for each side that is compared, of its last round")
	flags.StringVar(&b.engines.postgresURL, "postgres", "", "URL of a PostgreSQL, as its superuser; default: one is started, with fsync on")
	flags.StringVar(&b.engines.mongoURL, "mongodb", "",
		"URL of a MongoDB that is a replica set; default: the mongod on PATH is started where there is one")
	flags.StringVar(&b.engines.mysqlURL, "mysql", "",
		"URL of a MariaDB or MySQL, such as mysql://root@127.0.0.1:3306/ (default "+mysqlengine.EnvURL+", or a MariaDB that is started)")
	flags.StringVar(&b.engines.sqlserverURL, "sqlserver", "",
		"URL of a SQL Server, for a user who may create databases; default: that of "+envSQLServerURL+"; none is started")
	flags.StringVar(&b.engines.kafkaAddr, "kafka", "", "host:port of a Kafka; default: one is started")
}

// settle fills in the settings that were not given.
func (b *bench) settle(s scenario, flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: %q is no flag", s.name, flags.Arg(0))
	}
	if b.n == 0 {
		if b.n = s.n; b.short {
			b.n = s.short
		}
	}
	if b.rounds == 0 {
		if b.rounds = 3; b.short {
			b.rounds = 1
		}
	}
	if b.held == 0 {
		if b.held = defaultHeld; b.short {
			b.held = shortHeld
		}
	}
	if b.forwards = b.batch; b.batch == 0 {
		b.batch = 500
	}
	if b.n < 0 || b.rounds < 1 || b.size < 1 || b.batch < 1 || b.held < 0 {
		return fmt.Errorf("%s: -n, -rounds, -size, -batch and -held want more than 0", s.name)
	}
	if (s.name == "inbox" || s.name == "saga") && b.handlers < 1 {
		return fmt.Errorf("%s: -handlers wants more than 0", s.name)
	}
	b.engines.log = b.say
	return nil
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

func (b *bench) end() { b.engines.end() }

// side is one side of a comparison. prepare is not measured.
type side struct {
	// field is the name of the result, such as outmill_msgs_per_s.
	field string
	// title is the name of the result for people.
	title   string
	prepare func(ctx context.Context) error
	// run does n things, and may return the time that they took; 0 means the duration of the call.
	run func(ctx context.Context) (time.Duration, error)
	// n is the number of things; 0 means the bench's n.
	n int
}

// compare runs the sides in turn, round by round, and records each one's rate
// in things per second.
func (b *bench) compare(ctx context.Context, sides ...side) error {
	for round := range b.rounds {
		for _, s := range sides {
			rate, err := b.rate(ctx, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.title, err)
			}
			b.say("round %d of %d: %s: %.0f/s; %s", round+1, b.rounds, s.title, rate, b.used)
			b.results.add(s.field, s.title, rate)
		}
	}
	return nil
}

func (b *bench) rate(ctx context.Context, s side) (float64, error) {
	if s.prepare != nil {
		if err := s.prepare(ctx); err != nil {
			return 0, fmt.Errorf("prepare: %w", err)
		}
	}
	endProfile, err := b.profile(s.field)
	if err != nil {
		return 0, err
	}
	began, use := time.Now(), b.cpuUse()
	took, err := s.run(ctx)
	if took == 0 {
		took = time.Since(began)
	}
	now := b.cpuUse()
	endProfile()
	if err != nil {
		return 0, err
	}
	n := s.n
	if n == 0 {
		n = b.n
	}
	b.used = now.since(use, n)
	return float64(n) / took.Seconds(), nil
}
