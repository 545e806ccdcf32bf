package forwarder

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

// DefaultGroup is the group of a forwarder that names none.
const DefaultGroup = "forwarder"

const (
	defaultUpkeepInterval = time.Minute
	// maxBatch bounds what one statement of a store is asked for.
	maxBatch = 10_000
	// maxDuration leaves room for sums.
	maxDuration = 24 * time.Hour
)

// Config has the settings of a Forwarder. The zero value forwards all topics
// but that of joins: see Topics.
type Config struct {
	// Group is the forwarder's consumer group. Default "forwarder". Forwarders
	// of one group share the records; a second destination needs a second group.
	Group string

	// Worker is the name under which Inspector.Groups shows this forwarder: free
	// text, up to 255 characters. Default: host:pid of the process.
	Worker string

	// Topics selects what is forwarded, by name or pattern. Default: all, save
	// storekit.JoinWaitTopic, whose messages are for the handler of package joins:
	// no pattern selects it, its name does.
	Topics outmill.Topics

	// Unordered gives up the order of keys. Claims are then cheaper, and
	// forwarders of several processes share the records of one key. It goes with
	// the KeyPolicy KeyBlock only, which then means nothing.
	Unordered bool

	// KeyPolicy is what a failing record means for the later ones of its key:
	// outmill.KeyBlock (the default), KeySkip or KeyPark. KeyPark costs a BatchPublisher's
	// speed: the records of one key are published one call after the other.
	KeyPolicy outmill.KeyPolicy

	// Retry is for messages that fail by themselves, and for hooks that fail; see
	// the package's words on what fails when. Default: 10 attempts,
	// min(2^n s, 60 s).
	Retry outmill.RetryPolicy

	// Filter, if set, decides which messages are forwarded; the others are acked
	// unpublished.
	Filter func(topic string, msg *message.Message) bool

	// Transform, if set, replaces each message before it is published. An error
	// is the message's own failure: retried by Retry, or dead if it is
	// outmill.Permanent. It may change and return the message that it gets.
	Transform func(topic string, msg *message.Message) (*message.Message, error)

	// MapTopic, if set, returns the topic to publish to. It sees the message that
	// Transform returned. Where the broker refuses that topic, the one that the
	// message came from is held.
	MapTopic func(topic string, msg *message.Message) string

	// Classify, if set, judges errors of publishers that do not mark theirs:
	// return outmill.Permanent(err), outmill.RetryAfter(err, d), an error that
	// wraps outmill.ErrTopicUnavailable or outmill.ErrBrokerUnavailable, or err
	// unchanged.
	Classify func(err error) error

	// BatchSize is the most records of one claim and one publish, up to 10,000.
	// Default 100.
	BatchSize int

	// MaxInFlightBytes bounds the payloads and metadata in memory; one record may
	// go beyond it. Default 16 MiB.
	MaxInFlightBytes int

	// Lanes is how many messages are published at a time to a publisher that
	// takes one at a time; no more than BatchSize. Default 64.
	Lanes int

	// Lease is how long a record is held without a sign of life. Default 30 s.
	Lease time.Duration

	// PublishTimeout bounds one call to a BatchPublisher. Default 30 s. A plain
	// publisher must bound its calls itself; after this time no further message
	// of a batch is given to it. The hooks have as long for their batch.
	PublishTimeout time.Duration

	// PollInterval is the longest wait between looks for new records. Default
	// 500 ms.
	PollInterval time.Duration

	// MaxErrorBackoff is the longest wait between attempts while the database or
	// the broker is away, or a topic is refused. Default 30 s.
	MaxErrorBackoff time.Duration

	// AckFlushInterval is the longest that an ack waits for others to share its
	// statement. Default 5 ms.
	AckFlushInterval time.Duration

	// CloseTimeout is how long Close waits for a publish under way. Default 10 s.
	CloseTimeout time.Duration

	// UpkeepInterval is how often the forwarder tidies the store. Default 60 s;
	// negative leaves that, and the store's housekeeping (see
	// [outmill.Janitor].Maintain), to others. Its registration it renews either way.
	UpkeepInterval time.Duration

	// OnDead is told of each record that this forwarder made dead, after the
	// store knows it. Be quick.
	OnDead func(rec *outmill.Record, reason string)

	// OnError is told of each error that is otherwise only logged: of a message
	// that could not be published, a topic that is held, a broker that is away, and
	// of claims, settlements and upkeep that fail. The forwarder goes on by itself
	// in all of these cases. Several goroutines may call it at a time, and they wait
	// for it: be quick, and do not call Close. A panic in it is logged.
	OnError func(err error)
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
	c.Topics = withoutJoinWait(c.Topics)
	defaultTo(&c.Group, DefaultGroup)
	c.Worker = worker.Name(c.Worker)
	defaultTo(&c.BatchSize, 100)
	defaultTo(&c.MaxInFlightBytes, 16<<20)
	defaultTo(&c.Lanes, 64)
	defaultTo(&c.Lease, 30*time.Second)
	defaultTo(&c.PublishTimeout, 30*time.Second)
	defaultTo(&c.PollInterval, 500*time.Millisecond)
	defaultTo(&c.MaxErrorBackoff, 30*time.Second)
	defaultTo(&c.AckFlushInterval, 5*time.Millisecond)
	defaultTo(&c.CloseTimeout, 10*time.Second)
	defaultTo(&c.UpkeepInterval, defaultUpkeepInterval)
}

// withoutJoinWait leaves the topic out where a pattern selects it. The caller's
// lists stay as they are.
func withoutJoinWait(topics outmill.Topics) outmill.Topics {
	name := outmill.Exact(storekit.JoinWaitTopic)
	if topics.Match(storekit.JoinWaitTopic) && !slices.Contains(topics.Include, name) {
		topics.Exclude = append(slices.Clone(topics.Exclude), name)
	}
	return topics
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every setting that makes no sense; each error is an
// outmill.ErrInvalidConfig, or ErrInvalidRecord for a name. New calls it.
func (c Config) Validate() error {
	c.setDefaults()
	errs := []error{storekit.CheckGroup(c.Group), storekit.CheckWorker(c.Worker), storekit.CheckTopics(c.Topics), c.Retry.Validate()}
	invalid := func(bad bool, field string, value any, want string) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: forwarder.Config.%s is %v: want %s", outmill.ErrInvalidConfig, field, value, want))
		}
	}
	positive := func(d time.Duration, field string) {
		invalid(d < 0 || d > maxDuration, field, d, "a duration above 0, at most "+maxDuration.String())
	}
	invalid(c.KeyPolicy < outmill.KeyBlock || c.KeyPolicy > outmill.KeyPark, "KeyPolicy", c.KeyPolicy, "KeyBlock, KeySkip or KeyPark")
	invalid(c.Unordered && c.KeyPolicy != outmill.KeyBlock, "KeyPolicy", c.KeyPolicy, "KeyBlock with Unordered")
	invalid(c.BatchSize < 1 || c.BatchSize > maxBatch, "BatchSize", c.BatchSize, "1 to 10000")
	invalid(c.MaxInFlightBytes < 1, "MaxInFlightBytes", c.MaxInFlightBytes, "1 or more")
	invalid(c.Lanes < 1, "Lanes", c.Lanes, "1 or more")
	positive(c.Lease, "Lease")
	positive(c.PublishTimeout, "PublishTimeout")
	positive(c.PollInterval, "PollInterval")
	positive(c.MaxErrorBackoff, "MaxErrorBackoff")
	positive(c.AckFlushInterval, "AckFlushInterval")
	positive(c.CloseTimeout, "CloseTimeout")
	return errors.Join(errs...)
}
