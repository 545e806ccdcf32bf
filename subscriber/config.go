package subscriber

import (
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

const defaultUpkeepInterval = time.Minute

// Config has the settings of a Subscriber. The zero value is ready to use.
type Config struct {
	// Group is the consumer group, outmill.DefaultGroup by default. Subscribers of one group share
	// the messages of a topic; each group gets every message.
	Group string

	// Worker is the name under which Inspector.Groups shows this subscriber: free
	// text, up to 255 characters. Default: host:pid of the process.
	Worker string

	// RegistrationTTL ends the registrations of the group for the topics that are
	// subscribed to, once nobody has renewed them for that long; a subscription
	// renews its own while it reads. Their undelivered records are then deleted,
	// counted and logged. It is for topics that lose their meaning with their
	// readers, such as those of replies. Default 0: they never end. A process of
	// the group that subscribes to the topic without it makes the registration
	// permanent until DropGroup.
	RegistrationTTL time.Duration

	// Order is whether records come one after the other: outmill.OrderNone (the
	// default), OrderKey for the records of one key, OrderTopic for all records
	// of a topic (strict mode: one message of the topic at a time, in all
	// processes together). All subscribers of a group should agree.
	Order outmill.Order

	// KeyPolicy is what a failing record means for the later ones of its key, in
	// the ordered modes: outmill.KeyBlock (the default), KeySkip or, with OrderKey, KeyPark.
	KeyPolicy outmill.KeyPolicy

	// Retry says how often and when a record is delivered again after a nack.
	// Default: 10 attempts, min(2^n s, 60 s).
	Retry outmill.RetryPolicy

	// BatchSize is the most records of one claim, and the most that are claimed
	// ahead of the handlers of a topic. Default 100. Useful values are 1 to 1,000:
	// larger batches cost memory and make a crash repeat more, smaller ones cost
	// round trips. How many records are claimed ahead follows the handlers' pace:
	// as many as they start within 100 ms. So slow handlers leave the rest to other
	// processes, whatever BatchSize is.
	BatchSize int

	// MaxInFlight is how many messages of one subscription are with handlers at
	// a time. Default 100. 1 handles one after the other, though in no promised
	// order if several processes subscribe; see Order.
	MaxInFlight int

	// MaxInFlightBytes bounds the payloads and metadata that the subscriptions of
	// one topic hold, waiting ones included; one record may go beyond it. Default
	// 16 MiB.
	MaxInFlightBytes int

	// Lease is how long a record is held without a sign of life. It is extended
	// while a handler runs. Default 30 s; useful values are 10 s to 5 min. A shorter
	// one makes the records of a dead process come sooner; a longer one survives
	// longer database outages. A record that was claimed ahead and has not started
	// after one lease is given back, without an attempt.
	Lease time.Duration

	// MaxProcessing ends the extension: a handler that takes longer is taken for
	// stuck. Its message's context ends, the attempt counts as failed, and the
	// record is delivered again, though not in this process before that handler
	// has returned. Default 15 min.
	MaxProcessing time.Duration

	// PollInterval is the longest wait between looks for new records when there
	// are none. Default 500 ms. Stores that can wake their readers make the
	// usual wait shorter.
	PollInterval time.Duration

	// MaxErrorBackoff is the longest wait between attempts while the database
	// fails. Default 30 s.
	MaxErrorBackoff time.Duration

	// AckFlushInterval is the longest that an ack waits for others to share its
	// statement. Default 5 ms. A crash in that time delivers the message again.
	AckFlushInterval time.Duration

	// CloseTimeout is how long handlers may go on after Close, or after the end of
	// their Subscribe's context, before their messages' contexts end. Default 30 s,
	// as the router's. Records of handlers that still run then stay leased; see
	// Subscriber.Close.
	CloseTimeout time.Duration

	// UpkeepInterval is how often the subscriber tidies the store (expired
	// leases and records, retention), registers its group again, and looks for
	// topics that nobody reads. Default 60 s; negative leaves the tidying, and the
	// store's housekeeping (see [outmill.Janitor].Maintain), to others.
	UpkeepInterval time.Duration

	// OnError is called with each error that the subscriber survives and otherwise
	// only logs: claims, settlements, extensions and upkeep that fail. Errors of
	// handlers do not count among them. It is called by the goroutine that met the
	// error: be quick, and do not call the subscriber.
	OnError func(err error)

	// OnDead is told of each record that this subscriber made dead, after the
	// store knows it. It is called by the goroutine that stores acks: be quick,
	// and do not call the subscriber. The record is the callee's.
	OnDead func(rec *outmill.Record, reason string)
}

// WithDefaults returns the configuration with the settings that a store's URL
// has ([outmill.DefaultsOf], [connect.Resolution]) in the place of those that are
// not set: Lease, BatchSize and Retry.MaxAttempts.
func (c Config) WithDefaults(defaults outmill.WorkerDefaults) Config {
	defaultTo(&c.Lease, defaults.Lease)
	defaultTo(&c.BatchSize, defaults.BatchSize)
	defaultTo(&c.Retry.MaxAttempts, defaults.MaxAttempts)
	return c
}

func (c *Config) setDefaults() {
	c.Worker = worker.Name(c.Worker)
	defaultTo(&c.Group, outmill.DefaultGroup)
	defaultTo(&c.BatchSize, 100)
	defaultTo(&c.MaxInFlight, 100)
	defaultTo(&c.MaxInFlightBytes, 16<<20)
	defaultTo(&c.Lease, 30*time.Second)
	defaultTo(&c.MaxProcessing, 15*time.Minute)
	defaultTo(&c.PollInterval, 500*time.Millisecond)
	defaultTo(&c.MaxErrorBackoff, 30*time.Second)
	defaultTo(&c.AckFlushInterval, 5*time.Millisecond)
	defaultTo(&c.CloseTimeout, 30*time.Second)
	defaultTo(&c.UpkeepInterval, defaultUpkeepInterval)
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every setting that makes no sense; each error is an
// outmill.ErrInvalidConfig, or ErrInvalidRecord for the group's name or the
// worker's. New calls it.
func (c Config) Validate() error {
	c.setDefaults()
	errs := []error{storekit.CheckGroup(c.Group), storekit.CheckWorker(c.Worker), c.Retry.Validate()}
	invalid := func(bad bool, field string, value any, want string) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: subscriber.Config.%s is %v: want %s", outmill.ErrInvalidConfig, field, value, want))
		}
	}
	positive := func(d time.Duration, field string) { invalid(d < 0, field, d, "a duration above 0") }
	invalid(c.Order < outmill.OrderNone || c.Order > outmill.OrderTopic, "Order", c.Order, "OrderNone, OrderKey or OrderTopic")
	invalid(c.KeyPolicy < outmill.KeyBlock || c.KeyPolicy > outmill.KeyPark, "KeyPolicy", c.KeyPolicy, "KeyBlock, KeySkip or KeyPark")
	invalid(c.Order == outmill.OrderTopic && c.KeyPolicy == outmill.KeyPark, "KeyPolicy", c.KeyPolicy, "KeyBlock or KeySkip with OrderTopic")
	invalid(c.BatchSize < 1, "BatchSize", c.BatchSize, "1 or more")
	invalid(c.MaxInFlight < 1, "MaxInFlight", c.MaxInFlight, "1 or more")
	invalid(c.MaxInFlightBytes < 1, "MaxInFlightBytes", c.MaxInFlightBytes, "1 or more")
	invalid(c.RegistrationTTL < 0, "RegistrationTTL", c.RegistrationTTL, "a duration above 0, or 0 for registrations that never end")
	positive(c.Lease, "Lease")
	positive(c.MaxProcessing, "MaxProcessing")
	positive(c.PollInterval, "PollInterval")
	positive(c.MaxErrorBackoff, "MaxErrorBackoff")
	positive(c.AckFlushInterval, "AckFlushInterval")
	positive(c.CloseTimeout, "CloseTimeout")
	return errors.Join(errs...)
}
