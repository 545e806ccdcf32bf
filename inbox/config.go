package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Defaults of Config.
const (
	defaultRetention     = 7 * 24 * time.Hour
	defaultWait          = time.Second
	defaultMaxProcessing = 15 * time.Minute
	// commitMargin is what a transaction needs besides its handler.
	commitMargin = 5 * time.Second
)

// Config sets an inbox up. Consumer is required; the zero value of any other field is its
// default.
type Config struct {
	// Consumer names the consumer: each handles a message once. Two handlers that must
	// both handle a message need two names. All instances of a handler share one, and it
	// must not change, because the notes are under this name. 1 to 255 characters.
	Consumer string

	// Key identifies a message. Two deliveries with one key are one message. Default: the
	// message's UUID. See ByMetadata. An error of Key makes the message fail for good
	// (outmill.Permanent).
	Key func(msg *message.Message) (string, error)

	// Retention is how long a note is kept. It must be longer than any redelivery of a
	// message can take. A change counts for notes to come. Default 7 days.
	Retention time.Duration

	// Publisher publishes the messages that the handler returns, inside the transaction: a
	// publisher over the same store. The topic is that of the router's handler. Default none:
	// then a handler that returns messages fails.
	Publisher message.Publisher

	// Wait is how long a message waits for another transaction that handles it at the same
	// time, before it comes again. It takes a connection for that long. Negative does not
	// wait. Default 1 s.
	Wait time.Duration

	// MaxProcessing ends the context of a handler that takes longer. Default 15 min; on
	// MongoDB 55 s, which is also the most there, because the server ends transactions after
	// 60 s.
	MaxProcessing time.Duration

	// AllowWithoutTransactions accepts a MongoDB store without transactions. Then a message is
	// noted after its handler has succeeded: a crash between the two, and two deliveries at
	// the same time, handle it twice.
	AllowWithoutTransactions bool

	// OnDuplicate is called for each duplicate, before it is acked. It must not block. Default
	// none.
	OnDuplicate func(msg *message.Message)

	// Logger gets a line at Debug for each duplicate. Default none.
	Logger watermill.LoggerAdapter
}

// ByMetadata is a Config.Key: the value of a metadata field, such as an id that the producer
// gives. A message without it fails for good.
func ByMetadata(name string) func(msg *message.Message) (string, error) {
	return func(msg *message.Message) (string, error) {
		value := msg.Metadata.Get(name)
		if value == "" {
			return "", fmt.Errorf("outmill/inbox: the message has no metadata %q, which identifies it", name)
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

// validate reports every value that makes no sense, as outmill.ErrInvalidConfig.
func (c Config) validate(limit time.Duration) error {
	var errs []error
	invalid := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: inbox.Config."+format, append([]any{outmill.ErrInvalidConfig}, args...)...))
		}
	}
	if err := (storekit.Note{Consumer: c.Consumer, Key: "any", Retention: time.Hour}).Validate(); err != nil {
		invalid(true, "Consumer is %.300q: %w", c.Consumer, err)
	}
	invalid(c.Retention < 0, "Retention is %s: want more than 0, or 0 for %s", c.Retention, defaultRetention)
	invalid(c.MaxProcessing < 0, "MaxProcessing is %s: want more than 0, or 0 for the default", c.MaxProcessing)
	invalid(limit > 0 && c.MaxProcessing > limit-commitMargin,
		"MaxProcessing is %s: want at most %s, because the database ends transactions after %s", c.MaxProcessing, limit-commitMargin, limit)
	return errors.Join(errs...)
}
