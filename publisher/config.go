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
	// outmill.ErrNoTx. Set it where each message belongs to a change of your data: a forgotten
	// WithTx would otherwise publish a message that a rollback does not take back. Default false.
	RequireTx bool

	// AllowNoTx says that messages outside a transaction are intended, as those of a poison
	// queue are. The publisher then does not warn of the first one. It cannot be set together
	// with RequireTx. Default false.
	AllowNoTx bool

	// RequirePayload refuses messages with a nil payload, with outmill.ErrInvalidRecord. An
	// empty payload is valid. Default false.
	RequirePayload bool

	// PublishTimeout limits the duration of one call. Default 30 s. Publish uses the values of
	// the messages' contexts but ignores their cancellation, because a poison queue must be
	// able to publish a message whose handler has timed out.
	PublishTimeout time.Duration

	// DelaysInMetadata honours Watermill's delay in the metadata of a message, no matter who has
	// put it there: delay.Message, the DefaultDelayGenerator of delay.NewPublisher, and the middleware
	// DelayOnError (for a poison queue) write it, and cannot be told apart from a sender elsewhere. So set it only for a
	// publisher that passes on no metadata from outside: a sender could postpone what you publish, for
	// years. Without it such metadata is data: it is published and delivered as it is, and the first
	// such message is a warning in the log. Default false.
	//
	// Needed for neither outmill.SetDelay nor delay.WithContext, in the context of a message or of
	// Publisher.WithContext, with or without delay.NewPublisher: a message brings no context along.
	DelaysInMetadata bool

	// OnDuplicate is called for each message that the store skipped because its dedup key was
	// seen before. Publish still succeeds. The publishing goroutine calls OnDuplicate, before
	// a caller's transaction commits. OnDuplicate may use the publisher. Default nil.
	OnDuplicate func(topic string, msg *message.Message)
}

func (c *Config) setDefaults() {
	if c.PublishTimeout == 0 {
		c.PublishTimeout = 30 * time.Second
	}
}

// Validate returns outmill.ErrInvalidConfig for an invalid setting. New calls it.
func (c Config) Validate() error {
	if c.RequireTx && c.AllowNoTx {
		return fmt.Errorf("%w: publisher.Config has RequireTx and AllowNoTx, which contradict each other: set one of them",
			outmill.ErrInvalidConfig)
	}
	if c.PublishTimeout < 0 {
		return fmt.Errorf("%w: publisher.Config.PublishTimeout is %s: want a duration above 0", outmill.ErrInvalidConfig, c.PublishTimeout)
	}
	return nil
}
