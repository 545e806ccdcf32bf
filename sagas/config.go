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
	"github.com/outmill/outmill/roles"
)

// Defaults of Config.
const (
	// DefaultConflictDelay is the default of Config.ConflictDelay.
	DefaultConflictDelay = 50 * time.Millisecond
	// DefaultRetention is the default of Config.Retention.
	DefaultRetention = 30 * 24 * time.Hour
)

var (
	// ErrConflict says that another handler has changed the saga in between. The message
	// comes again, and no attempt counts before the tenth conflict in a row.
	ErrConflict = roles.ErrSagaConflict
	// ErrStarted says that another handler has started the same saga in between. The message
	// comes again, and no attempt counts before the tenth conflict in a row.
	ErrStarted = roles.ErrSagaExists
	// ErrState says that the stored state cannot be decoded into the Go type. The message is
	// tried again, and goes dead when its attempts are used up.
	ErrState = roles.ErrSagaState
	// ErrUnkeyed says that the kind's collection has documents of another program that have no
	// correlation value. A message of the kind is tried again, and goes dead when its attempts are
	// used up. docs/sagas.md says how to adopt such documents.
	ErrUnkeyed = roles.ErrSagaUnkeyed
	// ErrNoCorrelation says that a message has no correlation value. It goes dead.
	ErrNoCorrelation = errors.New("outmill: the message has no correlation value")
	// ErrUnknownMessage says that a kind of sagas has no reaction to messages of this type.
	// The message goes dead. See Config.AckUnknown.
	ErrUnknownMessage = errors.New("outmill: the sagas have no reaction to messages of this type")
)

// Config has the settings of a kind of sagas. Store is required.
type Config struct {
	// Store keeps the sagas and the messages that they publish. It must be a
	// roles.Transactor and a roles.Sagas, as sqlite, postgres, mongo (with transactions)
	// and sqlserver are.
	Store outmill.Store
	// Inbox makes each message be handled once: the transaction then also contains a note of
	// the message. The zero value of inbox.Config is ready to use; its Consumer is "saga:" and the kind's name by default. A
	// message that comes on two topics is handled once on each.
	// Default nil: a message that comes twice is handled twice.
	Inbox *inbox.Config
	// Marshaler decodes messages, and encodes the values of PublishValue and Timeout. With a
	// marshaler that names types, such as those of Watermill's cqrs, a topic may have messages
	// of several types. Default: payloads are JSON, and each topic has one type.
	Marshaler Marshaler
	// AckUnknown acks messages of a type for which there is no reaction, as
	// cqrs.EventGroupProcessorConfig.AckOnUnknownEvent does. Default false: they go dead with
	// ErrUnknownMessage.
	AckUnknown bool
	// TypeName returns the name of the kind for the name of the state's Go type. On MongoDB it
	// names the collection, elsewhere it is the value of the type column. Two kinds of one
	// store need two names. Default strings.ToLower.
	TypeName func(goType string) string
	// Options decide how the store keeps the state.
	Options roles.SagaOptions
	// KeepFinished keeps completed sagas, with their correlation values, for Retention.
	// Default false: they are deleted at once.
	KeepFinished bool
	// Retention is how long finished sagas are kept, by the database's clock. Subscribers and
	// forwarders of the store then delete them as part of their upkeep; MongoDB also deletes
	// them itself. A changed value applies to sagas that finish later. Default 30 days; with a
	// negative value they are kept until DeleteFinished.
	Retention time.Duration
	// NotFound is called for a message whose saga does not exist or is finished, except for
	// timeouts. It gets a copy of the message, whose context carries the transaction. Its
	// error counts as the handler's, and like a handler it may run again. Default nil: the
	// message is logged and acked.
	NotFound func(msg *message.Message, correlation string) error
	// ConflictDelay is the mean time until a message comes again after a conflict. Each wait
	// is random, from 0.5 to 1.5 times this. Default 50 ms.
	ConflictDelay time.Duration
	// Logger gets the log lines. Default: no logs.
	Logger watermill.LoggerAdapter
}

// Validate returns an outmill.ErrInvalidConfig for every invalid setting, joined. Define
// calls it.
func (c Config) Validate() error {
	var errs []error
	if outmill.IsNil(c.Store) {
		errs = append(errs, fmt.Errorf("%w: sagas.Config.Store is nil: set the store that keeps the sagas", outmill.ErrInvalidConfig))
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

// newInbox returns nil if Config.Inbox is nil.
func (c *Config) newInbox(kind string) (*inbox.Inbox, error) {
	if c.Inbox == nil {
		return nil, nil
	}
	own := *c.Inbox
	own.Consumer = cmp.Or(own.Consumer, "saga:"+kind)
	if own.Logger == nil {
		own.Logger = c.Logger
	}
	return inbox.New(c.Store, own)
}

func nameOf[State any]() string { return reflect.TypeFor[State]().Name() }
