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

// DefaultGroup is the group of a forwarder that names no group.
const DefaultGroup = "forwarder"

const (
	defaultUpkeepInterval = time.Minute
	defaultBatch          = 100
	// maxBatch limits the number of records in one statement of a store.
	maxBatch = 10_000
	// maxDuration is small enough that sums of durations do not overflow.
	maxDuration = 24 * time.Hour
)

// Config has the settings of a Forwarder. The zero value forwards all topics except those of
// joins: see Topics.
type Config struct {
	// Group is the forwarder's consumer group. Default "forwarder". Forwarders
	// of one group share the records; a second destination needs a second group.
	Group string

	// Worker is the name under which Inspector.Groups shows this forwarder: free
	// text, up to 255 characters. Default: host:pid of the process.
	Worker string

	// Topics selects the topics to forward, by name or pattern. Default: all, except
	// storekit.JoinTopics, whose messages are for the handlers of package joins. No pattern
	// selects these topics; only their names do.
	Topics outmill.Topics

	// Unordered gives up the order of keys. Claims are then cheaper, and forwarders of several
	// processes share the records of one key. It requires the KeyPolicy KeyBlock (the
	// default), which then has no effect.
	Unordered bool

	// KeyPolicy says what a failing record does to the later records of its key:
	// outmill.KeyBlock (the default), KeySkip or KeyPark. KeyPark makes a BatchPublisher
	// slower, because the records of one key are published in separate calls, one after the
	// other.
	KeyPolicy outmill.KeyPolicy

	// Retry applies to messages that cause their failures themselves, and to hooks that fail;
	// see "When publishing fails" in the package documentation. Default: 10 attempts, min(2^n
	// s, 60 s).
	Retry outmill.RetryPolicy

	// Filter, if set, decides which messages are published; the forwarder acks the others.
	Filter func(topic string, msg *message.Message) bool

	// Transform, if set, replaces each message before it is published. If it returns an error,
	// the message fails: Retry applies, or the record goes dead if the error is
	// outmill.Permanent. Transform may change and return the message that it gets.
	Transform func(topic string, msg *message.Message) (*message.Message, error)

	// MapTopic, if set, returns the topic to publish to. It gets the message that Transform
	// returned. If the broker refuses the returned topic, the forwarder holds the topic of the
	// record.
	MapTopic func(topic string, msg *message.Message) string

	// Classify, if set, names the cause of a publisher's error: return outmill.Permanent(err),
	// outmill.RetryAfter(err, d), an error that wraps outmill.ErrTopicUnavailable or
	// outmill.ErrBrokerUnavailable, or err unchanged.
	Classify func(err error) error

	// BatchSize is the largest number of records of one claim and one publish, up to 10,000. By default it
	// grows with the backlog: it is 100, doubles with each claim that is full up to 4,000 on PostgreSQL and 1,000 on other
	// stores, or to a third of MaxInFlightBytes, and is 100 again after one that is not full, and while messages take
	// longer than a quarter of Lease from the claim to the stored ack.
	// Records whose lease has ended once, because their process died, come 100 at a time. A larger batch costs less,
	// and a process that dies publishes as many messages more than once: up to three batches. A BatchSize that
	// is set does not grow.
	BatchSize int

	// MaxInFlightBytes limits the payloads and metadata in memory; one record may exceed it.
	// Default 16 MiB.
	MaxInFlightBytes int

	// Lanes is the number of concurrent calls of a publisher that takes one message per call,
	// at most BatchSize. Default 64.
	Lanes int

	// Lease is the time for which a claim leases a record. Default 30 s.
	Lease time.Duration

	// PublishTimeout limits one call of a BatchPublisher. Default 30 s. A plain publisher must
	// limit its calls itself; after this time it gets no further message of the batch. The
	// hooks have the same time for a batch.
	PublishTimeout time.Duration

	// PollInterval is the longest wait between two claims while no records are due. Default
	// 500 ms. With a store that hears of the commits of other processes, as PostgreSQL does, it is
	// twice as long once nothing has come for 10 s.
	PollInterval time.Duration

	// MaxErrorBackoff is the longest wait between attempts while the database or the broker is
	// unavailable, or the broker refuses a topic. Default 30 s.
	MaxErrorBackoff time.Duration

	// AckFlushInterval is the longest time that an ack waits for other acks to share its
	// statement. Default 5 ms.
	AckFlushInterval time.Duration

	// CloseTimeout is how long Close waits for a publish in progress. Default 10 s.
	CloseTimeout time.Duration

	// UpkeepInterval is the time between two rounds of upkeep: the forwarder runs a janitor of
	// the store (expired leases and records, retention; see package janitor), renews its
	// registration, and warns of topics that no group reads. Default 60 s. If it is negative,
	// the forwarder runs no janitor; another process must.
	UpkeepInterval time.Duration

	// OnDead is called for each record that this forwarder made dead, after the store has
	// saved it. It must return quickly. It learns nothing of records that the store makes dead
	// without an attempt to forward them: see docs/operations.md.
	OnDead func(rec *outmill.Record, reason string)

	// OnError is called with each error that is otherwise only logged: a message that could
	// not be published, a topic on hold, an unavailable broker, and failed claims, settlements
	// and upkeep. The forwarder continues in all of these cases. Several goroutines may call
	// OnError concurrently, and they wait for it, so it must return quickly and must not call
	// Close. A panic in OnError is logged.
	OnError func(err error)
}

// WithDefaults returns the configuration with Lease, BatchSize and Retry.MaxAttempts of a
// store's URL ([outmill.DefaultsOf], [connect.Resolution]) where these are not set.
func (c Config) WithDefaults(defaults outmill.WorkerDefaults) Config {
	defaultTo(&c.Lease, defaults.Lease)
	defaultTo(&c.BatchSize, defaults.BatchSize)
	defaultTo(&c.Retry.MaxAttempts, defaults.MaxAttempts)
	return c
}

// mostBatch is the largest number of records of one claim and one publish. It grows only if the user has not chosen it.
func (c Config) mostBatch(queue outmill.Queue) int {
	if c.BatchSize > 0 {
		return c.BatchSize
	}
	if store, says := outmill.As[storekit.LargestClaimer](queue); says {
		return min(max(store.LargestClaim(), defaultBatch), maxBatch)
	}
	return storekit.LargestClaim
}

func (c *Config) setDefaults() {
	c.Topics = withoutJoins(c.Topics)
	defaultTo(&c.Group, DefaultGroup)
	c.Worker = worker.Name(c.Worker)
	defaultTo(&c.BatchSize, defaultBatch)
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

// withoutJoins excludes the topics of joins, unless they are selected by name. It does not
// change the caller's lists.
func withoutJoins(topics outmill.Topics) outmill.Topics {
	for _, topic := range storekit.JoinTopics() {
		name := outmill.Exact(topic)
		if topics.Match(topic) && !slices.Contains(topics.Include, name) {
			topics.Exclude = append(slices.Clone(topics.Exclude), name)
		}
	}
	return topics
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error for every invalid setting, joined. Each is an
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
