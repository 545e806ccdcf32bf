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
	"github.com/outmill/outmill/storekit"
)

// Next is a message to publish when a join has ended.
type Next struct {
	// Topic is where it goes; "" publishes nothing.
	Topic string
	// Message is published as by a Publish of one's own: its payload, and its
	// metadata with all that the setters mean (outmill.SetKey, joins.AddStep for a join
	// around this one; delays count from the join's end). Wait copies it. Its UUID
	// and its context are not used: it gets a new UUID as the join ends. nil is an
	// empty message.
	//
	// The join's own metadata is added, where the message has no entry of that
	// name, and what became of the join: MetadataJoinID and the others. A message
	// without a correlation id or tenant gets that of the message on Topic.
	Message *message.Message
}

// WaitRequest says what is to follow a join. One of OnComplete and OnFail, at
// least, has a topic.
type WaitRequest struct {
	// Join is the join to wait for.
	Join outmill.JoinID
	// FailIfAnyStepFailed fails the join when a step of it has failed. It is for
	// storekit.JoinAll; the other policies need the steps that they need.
	FailIfAnyStepFailed bool
	// Seal says that a join which was started unsealed has ExpectedSteps steps, 0
	// or more: unlike the store's SealJoin, as part of the transaction. It means
	// nothing for another join.
	Seal          bool
	ExpectedSteps int
	// OnComplete follows the join that completed, OnFail the one that failed. A
	// join that is cancelled is followed by nothing.
	OnComplete, OnFail Next
}

// Wait has the join ended when it is decided: it publishes a message on Topic,
// in the transaction that ctx carries, for the handler of AddHandlers. As with
// any publish, ctx lends its values, not its end. pub is a publisher over the
// join's store, a publisher.Publisher or one that decorates it; the message has
// the correlation id and the tenant of OnComplete or OnFail.
//
// Wait may come before the steps or after them, and does not look at the join:
// where there is none, the message goes dead. Of several waits for one join the
// first to be handled after the join is decided counts. The message holds both payloads, so the two have
// to stay under three quarters of the largest payload that the store takes.
//
// Errors, with nothing published: outmill.ErrInvalidRecord where the join's id
// is zero, there is no topic, or a message could not be published (which field
// and why), ErrInvalidConfig for a nil publisher, and those of the publisher.
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

// inherited is what the message on Topic and the one that follows have in
// common.
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
		w.ExpectedSteps > storekit.MaxJoinSteps, "expected steps", fmt.Sprintf("is %d: want 0 to %d", w.ExpectedSteps, storekit.MaxJoinSteps))
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

// validate refuses now what the store would refuse when the join ends and
// nobody is there to be told.
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
		return &outmill.InvalidRecordError{Index: -1, Field: name + " joins", Reason: "have the join that it follows, which has ended by then"}
	}
	return nil
}

func (n Next) record() (*outmill.Record, error) {
	if n.Message == nil {
		return storekit.RecordOf(n.Topic, &message.Message{})
	}
	return storekit.RecordOf(n.Topic, n.Message)
}

// named says which message the errors are about; it is the only one.
func named(name string, err error) error {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		var invalid *outmill.InvalidRecordError
		if errors.As(err, &invalid) {
			invalid.Index, invalid.Field = -1, name+" "+invalid.Field
		}
	}
	return err
}
