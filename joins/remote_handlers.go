package joins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

// RemoteTopic has the steps that SendSteps sends to other stores, in the store of their
// join. OutcomeTopic has the outcomes of these steps, in the store of the message.
const (
	RemoteTopic  = storekit.JoinRemoteTopic
	OutcomeTopic = storekit.JoinOutcomeTopic
)

const (
	// DefaultRemoteSnooze is the default of RemoteConfig.Snooze.
	DefaultRemoteSnooze = time.Minute
	// DefaultCallTimeout is the default of RemoteConfig.CallTimeout.
	DefaultCallTimeout = 10 * time.Second
	// firstPause is the pause after the first check. It doubles with each claim.
	firstPause = time.Second
)

// Errors of steps in other stores, for errors.Is. Records that are dead because of them have
// their text.
var (
	// ErrForeignOutcome says that a message on OutcomeTopic settles a step that was sent to
	// another store than the one that the message came from.
	ErrForeignOutcome = errors.New("outmill: the outcome is of a step that was sent to another store")
	// ErrNotAllowed says that RemoteConfig.Allow refuses a step.
	ErrNotAllowed = errors.New("outmill: RemoteConfig.Allow refuses steps from this store to the other one")
)

// RemoteConfig has the settings of the handlers of steps in other stores. Stores must be set.
type RemoteConfig struct {
	// Stores returns the open store of a name, for joins and for their steps: the method Outbox
	// of a tenants.Set, or [Among]. A name is that of a delivery's Store. After an error the
	// handlers try again, until the join has ended; after outmill.Permanent a step fails.
	Stores func(name string) (outmill.Store, error)

	// Allow, if set, says whether steps of joins in the store home may go to the store to, which
	// may be home too. A step that is refused fails. Set it if not everybody who can publish in
	// one store may publish in all others, because each step is a publish there.
	Allow func(home, to string) bool

	// Snooze is the longest time between two checks of a step that is not settled, and between
	// two attempts to reach a store that is away. Default 1 min. It delays no step and no
	// outcome while both stores are there.
	Snooze time.Duration

	// CallTimeout limits a call of a store, so that one that hangs does not occupy the handlers
	// for steps of other stores. Default 10 s.
	CallTimeout time.Duration

	// Prefix comes before the names of the handlers in the router, "join.remote" and
	// "join.outcome". A router that has the handlers of several subscribers needs one for each.
	Prefix string
}

// Validate returns an outmill.ErrInvalidConfig for every invalid setting, joined.
// AddRemoteHandlers calls it.
func (c RemoteConfig) Validate() error {
	var errs []error
	if c.Stores == nil {
		errs = append(errs, fmt.Errorf("%w: joins.RemoteConfig.Stores is nil: want the Outbox of a tenants.Set, or joins.Among",
			outmill.ErrInvalidConfig))
	}
	for name, value := range map[string]time.Duration{"Snooze": c.Snooze, "CallTimeout": c.CallTimeout} {
		if value < 0 {
			errs = append(errs, fmt.Errorf("%w: joins.RemoteConfig.%s is %s: want a duration above 0", outmill.ErrInvalidConfig, name, value))
		}
	}
	return errors.Join(errs...)
}

// AddRemoteHandlers adds the handlers of steps in other stores to the router. They read
// RemoteTopic and OutcomeTopic through sub, a subscriber.Subscriber or a decorator of one. For
// a tenants.Set, one call with a subscriber of the set is enough. Otherwise call it with a
// subscriber of each store, those of joins and those of steps. Routers of several processes
// may all have the handlers. The store of a step must be a roles.Joins and a
// roles.Transactor.
//
// The handlers include the middleware subscriber.KeepError. A store that is away uses up no
// attempt: the error is logged, and the message comes again after a pause, which grows to
// RemoteConfig.Snooze. A message goes dead at once, with the reason, if no retry can help. On
// RemoteTopic the step has then failed; a requeue, while the join is pending, sends it again.
// A PoisonQueue in the router gets a copy of such a message, and does not ack it.
//
// AddRemoteHandlers returns the two handlers. Its errors are those of AddHandlers.
func AddRemoteHandlers(router *message.Router, sub message.Subscriber, cfg RemoteConfig) ([]*message.Handler, error) {
	if router == nil || outmill.IsNil(sub) {
		return nil, fmt.Errorf("%w: joins.AddRemoteHandlers: the router or the subscriber is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &remote{cfg: cfg, log: router.Logger()}
	r.cfg.Snooze = cmp.Or(cfg.Snooze, DefaultRemoteSnooze)
	r.cfg.CallTimeout = cmp.Or(cfg.CallTimeout, DefaultCallTimeout)
	var all []*message.Handler
	for _, h := range []struct {
		topic  string
		handle message.NoPublishHandlerFunc
	}{{RemoteTopic, r.send}, {OutcomeTopic, r.settle}} {
		added, err := addHandler(router, cfg.Prefix+h.topic, h.topic, sub, h.handle)
		if err != nil {
			return nil, fmt.Errorf("%w: joins.AddRemoteHandlers: %w", outmill.ErrInvalidConfig, err)
		}
		added.AddMiddleware(nackErrors, subscriber.KeepError)
		all = append(all, added)
	}
	return all, nil
}

// addHandler returns the router's panic as an error, which is that the name is taken.
func addHandler(router *message.Router, name, topic string, sub message.Subscriber, handle message.NoPublishHandlerFunc) (
	added *message.Handler, err error) {
	defer func() {
		if r := recover(); r != nil {
			added, err = nil, fmt.Errorf("%v", r)
		}
	}()
	return router.AddConsumerHandler(name, topic, sub, handle), nil
}

// nackErrors nacks a message whose handler failed, so that no middleware outside of it, such as a
// PoisonQueue, can have it acked: the ack of a step that was not sent would complete the step.
func nackErrors(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err != nil {
			msg.Nack()
		}
		return produced, err
	}
}

// remote has the handlers of steps in other stores. See the package comment for the protocol.
type remote struct {
	cfg RemoteConfig
	log watermill.LoggerAdapter
}

// place is a store of a join or of a step.
type place struct {
	outmill.Store
	roles.Joins
}

// on calls fn with the store of that name, and a context that limits calls to it.
func (r *remote) on(ctx context.Context, name string, fn func(ctx context.Context, store place) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	store, err := r.cfg.Stores(name)
	if err != nil {
		return fmt.Errorf("outmill: store %q of a join: %w", name, err)
	}
	joins, ok := outmill.As[roles.Joins](store)
	if !ok {
		return outmill.Permanent(fmt.Errorf("%w: store %q has no joins: a %T is no roles.Joins", outmill.ErrInvalidConfig, name, store))
	}
	return fn(ctx, place{store, joins})
}

// delivered describes the record of the message.
func delivered(msg *message.Message) (outmill.DeliveryInfo, error) {
	delivery, ok := outmill.Delivery(msg.Context())
	if !ok {
		return delivery, outmill.Permanent(fmt.Errorf("%w: joins.AddRemoteHandlers: the message came from another subscriber "+
			"than subscriber.Subscriber", outmill.ErrInvalidConfig))
	}
	return delivery, nil
}

// again logs the error and snoozes the message, so that no attempt counts. It returns an error
// that no retry can help.
func (r *remote) again(text string, err error, delivery outmill.DeliveryInfo, fields watermill.LogFields) error {
	if outmill.IsPermanent(err) {
		return err
	}
	pause := r.pause(delivery)
	r.log.Error(text, err, fields.Add(watermill.LogFields{"again_in": pause.String()}))
	return outmill.Snooze(pause)
}

// pause doubles with each claim, up to the longest.
func (r *remote) pause(delivery outmill.DeliveryInfo) time.Duration {
	pause := firstPause
	for range delivery.Claims - 1 {
		if pause >= r.cfg.Snooze {
			break
		}
		pause *= 2
	}
	return min(pause, r.cfg.Snooze)
}
