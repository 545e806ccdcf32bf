package worker

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// Config has no defaults: subscriber, forwarder and joins document and set their own.
type Config struct {
	Queue  outmill.Queue
	Logger watermill.LoggerAdapter
	// Name is the ProcessedBy of records that the worker acks; "" is none.
	Name string

	Group     string
	Topics    outmill.Topics
	Order     outmill.Order
	KeyPolicy outmill.KeyPolicy
	Retry     outmill.RetryPolicy

	// ByTopic gives each topic its own feed, which Open opens; Topics is then ignored. A topic
	// has one item in flight for each of its hands, and those that its handlers start soon
	// (see pace). Without ByTopic all topics share one feed.
	ByTopic bool

	// BatchSize is the largest number of records of one claim. If MostBatch is larger, claims grow up to that while
	// there is a backlog, and MaxItems grows with them: see growth. It is for workers that are not ByTopic.
	BatchSize, MostBatch int
	// MaxItems and MaxBytes limit the unsettled items of each feed. With ByTopic the hands
	// limit their number instead of MaxItems.
	MaxItems int
	MaxBytes int
	// MaxRecord returns that of outmill.ClaimRequest, before each claim; nil is 0.
	MaxRecord func() int
	// MaxPerTenant limits the unsettled items of each tenant of a feed, together with the
	// handlings that continue after their lease was lost. 0 is no limit. It is for workers that
	// are ByTopic, on stores and topics that serve turns.
	MaxPerTenant int

	Lease time.Duration
	// MaxProcessing is the longest duration of a handling, counted from Take, or with
	// AwaitStart from Started. A handling that takes longer fails and loses its lease. An item
	// that waits longer before its handling is released, so that other processes can handle
	// it.
	MaxProcessing time.Duration

	// PollInterval is the longest wait between claims that find nothing.
	PollInterval time.Duration
	// MaxErrorBackoff is the longest wait between claims that fail.
	MaxErrorBackoff time.Duration
	// FlushInterval is the longest time that an outcome waits for others.
	FlushInterval time.Duration

	// Raw has the records keep their metadata as a list, where the store can claim so: see Item.Raw.
	Raw bool
	// Whole reports whether the next claim may become a batch: see Batch. nil is never. It is for a worker that is Pipelined and not ByTopic,
	// whose user takes with TakeBatches, and whose MaxProcessing is not shorter than Lease.
	Whole func() bool
	// Pipelined lets Take return later records of a key before earlier ones are settled. The
	// user keeps their order, and releases the later ones if an earlier one fails.
	Pipelined bool
	// AwaitStart says that the handling of a taken item begins with Started, which may be
	// called much later than Take.
	AwaitStart bool

	// OnDead is called for each record that went dead, after the store has saved it.
	OnDead func(rec *outmill.Record, reason string)
	// OnError is called with each error that is otherwise only logged. A panic in it is
	// logged.
	OnError func(err error)
	// Failing notes the results of the worker's calls; nil is one of the worker's own.
	Failing *Failing
	// Repeats is shared by the workers of one subscriber; nil is one of the worker's own.
	Repeats *Repeats
	// Running is shared by workers that must not deliver the same record twice at a time.
	Running *Registry
}

const (
	// storeTimeout limits each call to the store.
	storeTimeout = 30 * time.Second
	// claimGrace is the time that a claim has to end when the worker stops.
	claimGrace = 5 * time.Second
)

// outlast returns a context for a claim. It ends claimGrace after ctx, because if the
// answer to a claim is lost, its records stay leased until the lease ends.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	stop := context.AfterFunc(ctx, func() {
		grace := time.AfterFunc(claimGrace, cancel)
		context.AfterFunc(lasting, func() { grace.Stop() })
	})
	return lasting, func() {
		stop()
		cancel()
	}
}
