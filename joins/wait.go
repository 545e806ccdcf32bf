package joins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Next is the message that follows a join when it has ended.
type Next struct {
	// Topic is the topic to publish to; "" publishes no message.
	Topic string
	// Message is published like any other message: its payload and its metadata, including the
	// effects of the setters (outmill.SetKey, or joins.AddStep for a join around this one).
	// Delays count from the join's end. Wait copies the message, and ignores its UUID and
	// context: it gets a new UUID when the join ends. nil is an empty message.
	//
	// The join's own metadata is added, except entries that the message has already, and so is
	// the outcome of the join: MetadataJoinID and the others. A message without a correlation
	// id or tenant gets that of the message on Topic.
	Message *message.Message
}

// WaitRequest says which messages follow a join. At least one of OnComplete and OnFail must
// have a topic.
type WaitRequest struct {
	// Join is the join to wait for.
	Join outmill.JoinID
	// FailIfAnyStepFailed fails the join if one of its steps has failed. It is for
	// roles.JoinAll; with the other policies, the number of completed steps decides.
	FailIfAnyStepFailed bool
	// Seal sets the number of steps of an unsealed join to ExpectedSteps, 0 or more, as part
	// of the transaction (the store's SealJoin does it outside). It has no effect on other
	// joins.
	Seal          bool
	ExpectedSteps int
	// OnComplete follows a completed join, and OnFail a failed one. No message follows a
	// cancelled join.
	OnComplete, OnFail Next
}

// Wait publishes a message on Topic, in the transaction that ctx carries. The handler of
// AddHandlers reads it and ends the join when the join is decided. As with any publish, the
// cancellation of ctx is ignored. pub is a publisher for the join's store: a
// publisher.Publisher or a decorator of one. The message has the correlation id and the
// tenant of OnComplete or OnFail.
//
// Call Wait before or after the steps are published. It does not read the join: if the join
// does not exist, the message goes dead. If several waits name one join, the first that is
// handled after the join is decided takes effect. The message holds both payloads, so
// together they must stay under three quarters of the largest payload that the store
// accepts.
//
// Errors, after which nothing is published: outmill.ErrInvalidRecord (with the field and
// the reason) if the join's id is zero, no topic is set, or a message is invalid;
// ErrInvalidConfig for a nil publisher; and those of the publisher.
func Wait(ctx context.Context, pub message.Publisher, wait WaitRequest) error {
	if outmill.IsNil(pub) {
		return fmt.Errorf("%w: joins.Wait: the publisher is nil", outmill.ErrInvalidConfig)
	}
	if err := wait.validate(); err != nil {
		return fmt.Errorf("outmill: wait for join %s: %w", wait.Join, err)
	}
	msg := message.NewMessage(watermill.NewUUID(), encode(wait))
	for _, name := range inherited {
		if value := cmp.Or(wait.OnComplete.get(name), wait.OnFail.get(name)); value != "" {
			msg.Metadata.Set(name, value)
		}
	}
	outmill.SetWaitsFor(msg, wait.Join)
	msg.SetContext(ctx)
	return pub.Publish(Topic, msg)
}

// inherited are the metadata that the message on Topic and the message that follows share.
var inherited = []string{outmill.MetadataCorrelationID, outmill.MetadataTenantID}

func (w WaitRequest) validate() error {
	var errs []error
	invalid := func(bad bool, field, reason string) {
		if bad {
			errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: field, Reason: reason})
		}
	}
	invalid(w.Join.IsZero(), "join", "is zero: want the id that Start returned")
	invalid(w.OnComplete.isNone() && w.OnFail.isNone(), "topic", "is missing: want one for OnComplete, OnFail, or both")
	invalid(w.ExpectedSteps < 0 ||
		w.ExpectedSteps > roles.MaxJoinSteps, "expected steps", fmt.Sprintf("is %d: want 0 to %d", w.ExpectedSteps, roles.MaxJoinSteps))
	invalid(w.ExpectedSteps > 0 && !w.Seal, "expected steps", fmt.Sprintf("is %d: want 0 unless the wait seals the join", w.ExpectedSteps))
	errs = append(errs, w.OnComplete.validate("OnComplete", w.Join), w.OnFail.validate("OnFail", w.Join))
	return errors.Join(errs...)
}

func (n Next) isNone() bool { return n.Topic == "" && n.Message == nil }

func (n Next) get(name string) string {
	if n.Message == nil {
		return ""
	}
	return n.Message.Metadata.Get(name)
}

// validate refuses a message that the store would refuse at the end of the join, when no
// caller could get the error.
func (n Next) validate(name string, join outmill.JoinID) error {
	if n.isNone() {
		return nil
	}
	rec, err := n.record()
	if err == nil {
		err = storekit.CheckRecords([]*outmill.Record{rec}, 0)
	}
	if err != nil {
		return named(name, err)
	}
	if slices.Contains(rec.Joins, join) {
		return &outmill.InvalidRecordError{Index: -1, Field: name + " joins",
			Reason: "name the join that the message follows, but this join has ended by then"}
	}
	return nil
}

func (n Next) record() (*outmill.Record, error) {
	if n.Message == nil {
		return storekit.RecordOf(n.Topic, &message.Message{})
	}
	return storekit.RecordOf(n.Topic, n.Message)
}

// named adds the name of the message to its errors.
func named(name string, err error) error {
	storekit.EachInvalid(err, func(invalid *outmill.InvalidRecordError) {
		invalid.Index, invalid.Field = -1, name+" "+invalid.Field
	})
	return err
}
