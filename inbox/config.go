package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Defaults of Config.
const (
	defaultRetention     = 7 * 24 * time.Hour
	defaultWait          = time.Second
	defaultMaxProcessing = 15 * time.Minute
	// commitMargin is the time that a transaction needs besides its handler.
	commitMargin = 5 * time.Second
)

// Config has the settings of an Inbox. Consumer is required; the zero value of any other
// field selects its default.
type Config struct {
	// Consumer names the program that handles the messages, or the part of it, such as
	// "billing". All instances of it share one name. Two programs that keep their notes in one
	// database need two names. 1 to 255 characters.
	//
	// A note belongs to the Consumer and to the delivery, so one inbox may serve all handlers of
	// a router. From a subscriber on the inbox's own store the delivery is known by its group, its
	// topic and the message's tenant id; from other subscribers by its topic, the name of the
	// router's handler, the tenant id and, if it is a subscriber of Outmill, the group. Do not
	// change these names: under new ones a message that comes again is handled again. See Shared.
	Consumer string

	// Shared makes a message be handled once by all that share the Consumer, whatever the group,
	// topic, handler or tenant of the delivery is: a note then belongs to the Consumer alone.
	// Default false.
	Shared bool

	// Key returns the identity of a message: two deliveries with the same key are the same
	// message. Its errors are permanent (outmill.Permanent). Default: the message's UUID. See
	// ByMetadata.
	Key func(msg *message.Message) (string, error)

	// Retention is how long a note is kept. It must be longer than any redelivery of a message from
	// elsewhere can take; the note of a message from the same store is kept at least as long as its
	// record. A changed value applies to new notes. Default 7 days.
	Retention time.Duration

	// Publisher publishes the messages that the handler returns, inside the transaction. It
	// must publish to the same store. The topic is the publish topic of the router's handler.
	// Default nil: it is then a permanent error if the handler returns messages.
	Publisher message.Publisher

	// Wait is how long a delivery waits if another transaction is handling the same message.
	// It keeps its connection for this time; afterwards the message comes again. Negative
	// does not wait. Default 1 s.
	Wait time.Duration

	// MaxProcessing is the longest time for a handler; then its context ends. Where the handler
	// must wait for its transaction (the write lock of SQLite), it counts from the begin of the
	// transaction, and the wait may take as long again. Default 15 min.
	// On MongoDB the default and the maximum are 55 s, because the server ends transactions
	// after 60 s.
	MaxProcessing time.Duration

	// OnDuplicate is called for each duplicate, before it is acked. It must not block. Default
	// nil.
	OnDuplicate func(msg *message.Message)

	// Logger gets a line at Debug level for each duplicate. Default: no logs.
	Logger watermill.LoggerAdapter
}

// ByMetadata returns a Config.Key that uses the metadata field name as the key, such as an id
// that the producer sets. A message without this field is a permanent error.
func ByMetadata(name string) func(msg *message.Message) (string, error) {
	return func(msg *message.Message) (string, error) {
		value := msg.Metadata.Get(name)
		if value == "" {
			return "", fmt.Errorf("outmill/inbox: the message has no metadata %q, which is its key", name)
		}
		return value, nil
	}
}

func byUUID(msg *message.Message) (string, error) {
	if msg.UUID == "" {
		return "", errors.New("outmill/inbox: the message has no UUID: set one, or Config.Key")
	}
	return msg.UUID, nil
}

func (c Config) withDefaults(limit time.Duration) Config {
	if c.Key == nil {
		c.Key = byUUID
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
	longest := defaultMaxProcessing
	if limit > 0 {
		longest = limit - commitMargin
	}
	c.Retention = cmp.Or(c.Retention, defaultRetention)
	c.Wait = max(cmp.Or(c.Wait, defaultWait), 0)
	c.MaxProcessing = cmp.Or(c.MaxProcessing, longest)
	return c
}

// validate returns an outmill.ErrInvalidConfig for every invalid setting, joined.
func (c Config) validate(limit time.Duration) error {
	var errs []error
	invalid := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: inbox.Config."+format, append([]any{outmill.ErrInvalidConfig}, args...)...))
		}
	}
	if err := storekit.CheckNote(roles.Note{Consumer: c.Consumer, Key: "any", Retention: time.Hour}); err != nil {
		invalid(true, "Consumer is %.300q: %w", c.Consumer, err)
	}
	invalid(c.Retention < 0, "Retention is %s: want more than 0, or 0 for %s", c.Retention, defaultRetention)
	invalid(c.MaxProcessing < 0, "MaxProcessing is %s: want more than 0, or 0 for the default", c.MaxProcessing)
	invalid(limit > 0 && c.MaxProcessing > limit-commitMargin,
		"MaxProcessing is %s: want at most %s, because the database ends transactions after %s", c.MaxProcessing, limit-commitMargin, limit)
	return errors.Join(errs...)
}
