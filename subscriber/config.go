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

	// RegistrationTTL is the time after which the group's registration for a subscribed topic
	// ends, unless a subscription renews it; a subscription does so while it reads. The upkeep
	// then deletes the undelivered records of the registration, and logs their number. It is
	// for topics that are useless without their readers, such as those of replies. Default 0:
	// registrations never end. If a process of the group subscribes to the topic without a
	// TTL, the registration is permanent until DropGroup.
	RegistrationTTL time.Duration

	// Order says which records are delivered one after the other: outmill.OrderNone (the
	// default) for none, OrderKey for the records of one key, OrderTopic for all records of a
	// topic (strict mode: one message of the topic at a time across all processes). All
	// subscribers of a group should use the same order.
	Order outmill.Order

	// KeyPolicy says, in the ordered modes, what a failing record does to the later records of
	// its key: outmill.KeyBlock (the default), KeySkip or, with OrderKey, KeyPark.
	KeyPolicy outmill.KeyPolicy

	// Retry says how often and when a record is delivered again after a nack.
	// Default: 10 attempts, min(2^n s, 60 s).
	Retry outmill.RetryPolicy

	// BatchSize is the largest number of records of one claim, and of records claimed ahead of
	// the handlers of a topic. Default 100. Useful values are 1 to 1,000: larger batches cost
	// memory and repeat more deliveries after a crash; smaller ones cost round trips. The
	// subscriber claims ahead only as many records as its handlers start within 100 ms, so
	// with slow handlers the other records stay available to other processes.
	BatchSize int

	// MaxInFlight is the largest number of messages of one subscription that are with handlers
	// at a time. Default 100. With 1, messages are handled one after the other, but without a
	// promised order if several processes subscribe; see Order.
	MaxInFlight int

	// MaxInFlightPerTenant is the largest number of records of one tenant (outmill.SetTenantID)
	// that the subscriber holds in a topic: those with handlers and those claimed ahead. A tenant
	// whose handlers are slow then does not take all of MaxInFlight, so it should be less than
	// MaxInFlight. A tenant that has as many waits for its own handlers, and others pass it.
	// Records without a tenant are those of one more tenant. Each process counts for itself, and
	// so does each subscriber. The store counts the records of a part (storekit.PartOf): a tenant
	// has less while others of its part have some.
	//
	// It needs a fair topic (storekit.TenantTurns, the setting FairTopics of the stores),
	// otherwise New or Subscribe returns an outmill.ErrInvalidConfig, and it is not for
	// OrderTopic. Default 0: no limit.
	MaxInFlightPerTenant int

	// MaxInFlightBytes limits the payloads and metadata in memory for the subscriptions of one
	// topic, including records that wait for a handler. One record may exceed it. Default 16
	// MiB.
	MaxInFlightBytes int

	// Lease is the time for which a claim leases a record. The subscriber extends it while a
	// handler runs. Default 30 s; useful values are 10 s to 5 min. With a shorter lease, other
	// processes get the records of a dead process sooner; a longer lease survives longer
	// database outages. A record that was claimed ahead and that no handler starts within one
	// lease is released; the attempt does not count.
	Lease time.Duration

	// MaxProcessing is the longest time for which the lease is extended. A handler that takes
	// longer counts as stuck: its message's context ends, the attempt fails, and the record is
	// delivered again, but in this process only after that handler has returned. Default 15
	// min.
	MaxProcessing time.Duration

	// PollInterval is the longest wait between two claims while no records are due. Default
	// 500 ms. With a store that can wake its readers the usual wait is shorter. With one that also
	// hears of the commits of other processes, as PostgreSQL does, the longest wait is twice as
	// long once nothing has come for 10 s.
	PollInterval time.Duration

	// MaxErrorBackoff is the longest wait between calls while the database fails. Default 30
	// s.
	MaxErrorBackoff time.Duration

	// AckFlushInterval is the longest time that an ack waits for other acks to share its
	// statement. Default 5 ms. After a crash during this time the message is delivered again.
	AckFlushInterval time.Duration

	// CloseTimeout is the time that handlers have after Close, or after the end of Subscribe's
	// context, before their messages' contexts end. Default 30 s, the same as the router's. If
	// handlers still run then, their records stay leased; see Subscriber.Close.
	CloseTimeout time.Duration

	// UpkeepInterval is the time between two rounds of upkeep: the subscriber runs a janitor of
	// the store (expired leases and records, retention; see package janitor), registers its
	// group again, and warns of topics that no group reads. Default 60 s. If it is negative,
	// the subscriber runs no janitor; another process must.
	UpkeepInterval time.Duration

	// OnError is called with each error that the subscriber survives and otherwise only logs:
	// failed claims, settlements, extensions and upkeep, but not errors of handlers. The
	// goroutine that got the error calls OnError, so it must return quickly and must not call
	// the subscriber.
	OnError func(err error)

	// OnDead is called for each record that this subscriber made dead, after the store has
	// saved it. The goroutine that stores acks calls OnDead, so it must return quickly and
	// must not call the subscriber. OnDead may keep the record. It learns nothing of records that
	// the store makes dead without a handling: see docs/operations.md.
	OnDead func(rec *outmill.Record, reason string)
}

// WithDefaults returns the configuration with Lease, BatchSize and Retry.MaxAttempts of a
// store's URL ([outmill.DefaultsOf], [connect.Resolution]) where these are not set.
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

// Validate returns an error for every invalid setting, joined. Each is an
// outmill.ErrInvalidConfig, or ErrInvalidRecord for the name of the group or the worker.
// New calls it.
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
	invalid(c.MaxInFlightPerTenant < 0, "MaxInFlightPerTenant", c.MaxInFlightPerTenant, "1 or more, or 0 for no limit")
	invalid(c.MaxInFlightPerTenant > 0 && c.Order == outmill.OrderTopic, "MaxInFlightPerTenant", c.MaxInFlightPerTenant,
		"0 with OrderTopic, which handles one message of the topic at a time")
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
