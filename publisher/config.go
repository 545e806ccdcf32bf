package publisher

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// Config has the settings of a Publisher. The zero value is ready to use.
type Config struct {
	// RequireTx refuses messages whose context carries no transaction, with
	// outmill.ErrNoTx. Default false.
	RequireTx bool

	// RequirePayload refuses messages with a nil payload, with
	// outmill.ErrInvalidRecord. An empty one is fine. Default false.
	RequirePayload bool

	// PublishTimeout bounds one call. Default 30 s. Messages' contexts lend
	// their values only, never their end: a poison queue must be able to publish
	// a message whose handler has timed out.
	PublishTimeout time.Duration

	// OnDuplicate is told of each message that the store left out because its
	// dedup key was seen before. The call succeeds all the same. The goroutine
	// that publishes calls it, before the commit of a caller's transaction, and it
	// may use the publisher. Default nil.
	OnDuplicate func(topic string, msg *message.Message)
}

func (c *Config) setDefaults() {
	if c.PublishTimeout == 0 {
		c.PublishTimeout = 30 * time.Second
	}
}

// Validate reports a setting that makes no sense, as
// outmill.ErrInvalidConfig. New calls it.
func (c Config) Validate() error {
	if c.PublishTimeout < 0 {
		return fmt.Errorf("%w: publisher.Config.PublishTimeout is %s: want a duration above 0", outmill.ErrInvalidConfig, c.PublishTimeout)
	}
	return nil
}
