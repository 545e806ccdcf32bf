package publisher

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Receipt says what became of messages that were published: see WithReceipt. It may be
// used concurrently.
type Receipt struct {
	// outer is the receipt of the context that this one was made from.
	outer *Receipt

	mu        sync.Mutex
	published []Published
}

// Published is one message that was published.
type Published struct {
	Topic string
	// MessageID is the message's UUID, or the one that the store made where it had none.
	MessageID string
	// Duplicate says that the store left the message out, because its dedup key was seen
	// before. The fields below are then zero.
	Duplicate bool
	// ID is that of the message's record, and of its first one by the name of the group
	// where several groups read the topic.
	ID outmill.WorkItemID
	// Groups are the groups that the message reaches, each with the id of its record. Of a
	// message that waits for the first group that registers for its topic it is empty.
	Groups map[string]outmill.WorkItemID
	// CreatedAt is the database's time of the append.
	CreatedAt time.Time
}

type receiptKey struct{}

// WithReceipt returns a context and the receipt of the messages that are published with
// it, by any Publisher of this package: messages whose own context it is, or comes from it,
// and those of a view of it (Publisher.WithContext). Because messages carry it, it also
// works through a cqrs EventBus and other decorators that keep a message's context. It costs
// no round trip.
//
//	ctx, receipt := publisher.WithReceipt(ctx)
//	err := bus.Publish(ctx, OrderPlaced{…})
//	id := receipt.Messages()[0].ID
//
// A message is on the receipt when Publish has returned without an error. In a caller's
// transaction it is published only if that commits. Where roles.Transactor runs its
// function again, the receipt forgets what the runs before published, so that it shows the
// last one. A context with a receipt may be given a second one; messages are then on both.
func WithReceipt(ctx context.Context) (context.Context, *Receipt) {
	r := &Receipt{outer: receiptOf(ctx)}
	return storekit.OnAgain(context.WithValue(ctx, receiptKey{}, r), r.mark), r
}

// Messages returns the messages in the order in which they were published.
func (r *Receipt) Messages() []Published {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.published)
}

// Of returns what became of the message with that UUID, when it was last published, and
// false where it was not.
func (r *Receipt) Of(messageID string) (Published, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range slices.Backward(r.published) {
		if p.MessageID == messageID {
			return p, true
		}
	}
	return Published{}, false
}

func (r *Receipt) mark() (forget func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.published)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.published = r.published[:before]
	}
}

func (r *Receipt) note(p Published) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published = append(r.published, p)
}

func receiptOf(ctx context.Context) *Receipt {
	if ctx == nil {
		return nil
	}
	r, _ := ctx.Value(receiptKey{}).(*Receipt)
	return r
}

// issue notes each message on the receipts of its context, and on those of the view.
func issue(base context.Context, messages []*message.Message, appended []*outmill.Record) {
	ofBase := receiptOf(base)
	for i, rec := range appended {
		own := receiptOf(messages[i].Context())
		if own == nil && ofBase == nil {
			continue
		}
		noted := map[*Receipt]bool{}
		for _, r := range []*Receipt{own, ofBase} {
			for ; r != nil && !noted[r]; r = r.outer {
				noted[r] = true
				r.note(publishedOf(rec))
			}
		}
	}
}

func publishedOf(rec *outmill.Record) Published {
	p := Published{Topic: rec.Topic, MessageID: rec.MessageID, Duplicate: rec.Duplicate}
	if rec.Duplicate {
		return p
	}
	p.ID, p.CreatedAt = rec.ID, rec.CreatedAt
	if rec.Group != "" {
		p.Groups = map[string]outmill.WorkItemID{rec.Group: rec.ID}
		for _, group := range rec.CopiedTo {
			p.Groups[group] = outmill.CopyID(rec.ID, group)
		}
	}
	return p
}
