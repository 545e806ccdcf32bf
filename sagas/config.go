package sagas

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/storekit"
)

// Defaults of Config.
const (
	// DefaultConflictDelay is about how long a message waits after a conflict.
	DefaultConflictDelay = 50 * time.Millisecond
	// DefaultRetention is how long finished sagas are kept.
	DefaultRetention = 30 * 24 * time.Hour
)

var (
	// ErrConflict says that another handler has changed the saga. The message comes
	// again, and no attempt is counted.
	ErrConflict = storekit.ErrSagaConflict
	// ErrStarted says that another handler has started the same saga. The message comes
	// again, and no attempt is counted.
	ErrStarted = storekit.ErrSagaExists
	// ErrState says that the stored state does not fit the type of the state. The message is
	// tried again, and goes dead when it has no attempt left.
	ErrState = storekit.ErrSagaState
	// ErrNoCorrelation says that a message has no correlation value. It goes dead.
	ErrNoCorrelation = errors.New("outmill: the message has no correlation value")
	// ErrUnknownMessage says that a kind of sagas has no reaction to messages of this type.
	// The message goes dead. See Config.AckUnknown.
	ErrUnknownMessage = errors.New("outmill: the sagas have no reaction to messages of this type")
)

// Config has the settings of a kind of sagas. Store must be set.
type Config struct {
	// Store keeps the sagas, and what they publish. It must be a storekit.Transactor and a
	// storekit.Sagas, as sqlite, postgres and mongo are; mongo with transactions.
	Store outmill.Store
	// Inbox has each message handled once: a note of it, the state, what the handler
	// publishes and, where the message comes from Store, its ack commit together. The zero
	// value is ready to use; Consumer is "saga:" and the kind's name by default. Default
	// nil: a message that comes twice is handled twice.
	Inbox *inbox.Config
	// Marshaler decodes messages, and encodes those of PublishValue and Timeout. A marshaler
	// that names the types of messages, as those of Watermill's cqrs do, lets a topic have
	// messages of several types. Default: payloads are JSON, of one type for each topic.
	Marshaler Marshaler
	// AckUnknown acks messages that have the name of a type for which there is no reaction,
	// as cqrs.EventGroupProcessorConfig.AckOnUnknownEvent does. Default false: they go dead
	// with ErrUnknownMessage.
	AckUnknown bool
	// TypeName names the kind, by the name of the state's Go type: the collection on
	// MongoDB, the type column elsewhere. Two kinds of one store need two names. Default
	// strings.ToLower.
	TypeName func(goType string) string
	// Options say how the store keeps the state.
	Options storekit.SagaOptions
	// KeepFinished keeps completed sagas, with their correlation values, for Retention.
	// Default false: they are deleted at once.
	KeepFinished bool
	// Retention is how long finished sagas are kept, by the database's clock. Subscribers and
	// forwarders of the store then delete them as part of their upkeep, and MongoDB by
	// itself. A change counts for sagas that finish later. Default 30 days; negative keeps
	// them until DeleteFinished.
	Retention time.Duration
	// NotFound is called for a message of a saga that does not exist or is finished,
	// except for timeouts; its error is that of the handler. It gets a copy of the message,
	// in the transaction, and may run again as a handler may. Default nil: the message is
	// logged and acked.
	NotFound func(msg *message.Message, correlation string) error
	// ConflictDelay is about how long a message waits after a conflict: at random, between
	// half of it and one and a half. Default 50 ms.
	ConflictDelay time.Duration
	// Logger may be nil.
	Logger watermill.LoggerAdapter
}

// Validate reports every setting that makes no sense, as outmill.ErrInvalidConfig. Define
// calls it.
func (c Config) Validate() error {
	var errs []error
	if outmill.IsNil(c.Store) {
		errs = append(errs, fmt.Errorf("%w: sagas.Config.Store is nil: want the store of the sagas", outmill.ErrInvalidConfig))
	}
	if c.ConflictDelay < 0 {
		errs = append(errs, fmt.Errorf("%w: sagas.Config.ConflictDelay is %s: want 0 (50 ms) or more", outmill.ErrInvalidConfig, c.ConflictDelay))
	}
	return errors.Join(errs...)
}

func (c *Config) setDefaults() {
	if c.TypeName == nil {
		c.TypeName = strings.ToLower
	}
	if outmill.IsNil(c.Marshaler) {
		c.Marshaler = plainJSON{}
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
	c.ConflictDelay = cmp.Or(c.ConflictDelay, DefaultConflictDelay)
	c.Retention = cmp.Or(c.Retention, DefaultRetention)
}

// newInbox is nil where Config.Inbox is.
func (c *Config) newInbox(kind string) (*inbox.Inbox, error) {
	if c.Inbox == nil {
		return nil, nil
	}
	own := *c.Inbox
	own.Consumer = cmp.Or(own.Consumer, "saga:"+kind)
	if own.Logger == nil {
		own.Logger = c.Logger
	}
	if own.AllowWithoutTransactions {
		return nil, fmt.Errorf("%w: sagas.Config.Inbox.AllowWithoutTransactions is true: sagas need transactions", outmill.ErrInvalidConfig)
	}
	return inbox.New(c.Store, own)
}

func nameOf[State any]() string { return reflect.TypeFor[State]().Name() }
