package sagas

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// DefaultConflictDelay is about how long a message waits after a conflict.
const DefaultConflictDelay = 50 * time.Millisecond

// MetadataCorrelation is the metadata in which a timeout has the saga's correlation value.
const MetadataCorrelation = "outmill_saga"

var (
	// ErrConflict says that another handler has changed the saga. The message comes
	// again, and no attempt is counted.
	ErrConflict = storekit.ErrSagaConflict
	// ErrStarted says that another handler has started the same saga. The message comes
	// again, and no attempt is counted.
	ErrStarted = storekit.ErrSagaExists
	// ErrNoCorrelation says that a message has no correlation value. It goes dead.
	ErrNoCorrelation = errors.New("outmill: the message has no correlation value")
)

// Config has the settings of a kind of sagas. Store must be set.
type Config struct {
	// Store keeps the sagas, and is the one whose messages the handlers read. It must be
	// a storekit.Transactor and a storekit.Sagas.
	Store outmill.Store
	// TypeName names the kind, by the name of the state's Go type: the collection on
	// MongoDB, the type column elsewhere. Default strings.ToLower.
	TypeName func(goType string) string
	// Options say how the store keeps the state.
	Options storekit.SagaOptions
	// KeepFinished keeps completed sagas, with their correlation values, until
	// DeleteFinished. Default false: they are deleted.
	KeepFinished bool
	// NotFound is called for a message of a saga that does not exist or is finished,
	// except for timeouts; its error is that of the handler. Default nil: the message is
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
	if c.ConflictDelay == 0 {
		c.ConflictDelay = DefaultConflictDelay
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

func nameOf[State any]() string { return reflect.TypeFor[State]().Name() }
