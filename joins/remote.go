package joins

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// RemoteStep is a message for another store, as a step of a join.
type RemoteStep struct {
	// Store is the name of the store that gets the message, as RemoteConfig.Stores and the
	// deliveries of that store name it: the key of a tenant, or outmill.Store.Name. 1 to 255
	// characters.
	Store string
	// Topic is the topic of that store to publish to. It cannot be one of package joins.
	Topic string
	// Message is published there like any other message, with its UUID. Delays and times to
	// live count from the append in that store. It cannot have a dedup key, be a step of a join
	// of that store, or wait for one. SendSteps copies it and ignores its context; nil is an
	// empty message.
	Message *message.Message
}

// SendSteps makes messages for other stores steps of a join, in the transaction that ctx
// carries. store has the join: the home of these steps. All steps are sent, or none.
//
// In the home each step is a record on [RemoteTopic], which stays there until the step is
// settled. The handlers of [AddRemoteHandlers] publish the message in its store, once, and
// bring back whether it was acked or went dead. So the step counts later than a step of the
// home. "Steps in other stores" in the package comment says what happens until then.
//
// Errors: outmill.ErrInvalidRecord (with the step's index, the field and the reason),
// outmill.ErrInvalidConfig for a nil store, and those of Append: [roles.ErrUnknownJoin],
// ErrJoinFinished, ErrTooManySteps and others. SendSteps does not look whether the other
// store exists.
func SendSteps(ctx context.Context, store outmill.Writer, join outmill.JoinID, steps ...RemoteStep) error {
	if outmill.IsNil(store) {
		return fmt.Errorf("%w: joins.SendSteps: the store is nil", outmill.ErrInvalidConfig)
	}
	if join.IsZero() {
		return fmt.Errorf("outmill: send steps of a join: %w", invalid(-1, "join", "is zero: want the id that Start returned"))
	}
	records := make([]*outmill.Record, len(steps))
	var errs []error
	for i, step := range steps {
		record, err := step.record(join)
		errs = append(errs, indexed(err, i))
		records[i] = record
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("outmill: send steps of join %s: %w", join, err)
	}
	return store.Append(ctx, records...)
}

// record makes the record in the home, whose id is the step's.
func (s RemoteStep) record(join outmill.JoinID) (*outmill.Record, error) {
	home := &outmill.Record{ID: outmill.NewWorkItemID(), Topic: RemoteTopic, Joins: []outmill.JoinID{join}}
	home.MessageID = home.ID.String()
	msg := s.Message
	if msg == nil {
		msg = &message.Message{Payload: message.Payload{}}
	}
	told, unfit := outmill.InstructionsOf(msg)
	p := remotePayload{
		Version: payloadVersion, Join: join, Step: home.ID, Store: s.Store, Topic: s.Topic,
		MessageID: msg.UUID, Payload: msg.Payload, Metadata: storekit.DataOf(msg), Instructions: told,
	}
	if p.MessageID == "" {
		p.MessageID = p.Step.String()
	}
	there, err := p.record()
	if err := errors.Join(checkStoreName(s.Store), unfit, err); err != nil {
		return nil, err
	}
	home.CorrelationID, home.TraceParent, home.TraceState = there.CorrelationID, there.TraceParent, there.TraceState
	home.Payload = encodeJSON(p)
	return home, nil
}

func checkStoreName(name string) error {
	err := storekit.CheckTopic(name)
	var bad *outmill.InvalidRecordError
	if errors.As(err, &bad) {
		bad.Field = "store"
	}
	return err
}

func invalid(index int, field, reason string) error {
	return &outmill.InvalidRecordError{Index: index, Field: field, Reason: reason}
}

// indexed says in the errors of one step which it is.
func indexed(err error, i int) error {
	storekit.EachInvalid(err, func(invalid *outmill.InvalidRecordError) { invalid.Index = i })
	return err
}

// UnknownStoreError says that [Among] has no store of a name.
type UnknownStoreError struct{ Store string }

func (e *UnknownStoreError) Error() string {
	return fmt.Sprintf("outmill: no store has the name %.60q: want the Name of one that joins.Among got", e.Store)
}

// Among returns the RemoteConfig.Stores of a fixed list of stores, by their names. Its
// errors: *UnknownStoreError; outmill.ErrInvalidConfig if two stores have the name that is
// looked for, or a store is nil.
func Among(stores ...outmill.Store) func(name string) (outmill.Store, error) {
	return func(name string) (outmill.Store, error) {
		var found outmill.Store
		for i, store := range stores {
			switch {
			case outmill.IsNil(store):
				return nil, fmt.Errorf("%w: joins.Among: store %d is nil", outmill.ErrInvalidConfig, i)
			case store.Name() != name:
			case found != nil:
				return nil, fmt.Errorf("%w: joins.Among: two stores have the name %.60q: set Config.Name of one of them",
					outmill.ErrInvalidConfig, name)
			default:
				found = store
			}
		}
		if found == nil {
			return nil, &UnknownStoreError{Store: name}
		}
		return found, nil
	}
}
