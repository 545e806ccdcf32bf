package worker

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// Config has no defaults of its own: subscriber, forwarder and joins document and set theirs.
type Config struct {
	Queue  outmill.Queue
	Logger watermill.LoggerAdapter
	// Name is kept as ProcessedBy of what the worker acks; "" is none.
	Name string

	Group     string
	Topics    outmill.Topics
	Order     outmill.Order
	KeyPolicy outmill.KeyPolicy
	Retry     outmill.RetryPolicy

	// ByTopic gives each topic a feed of its own, which Open opens: Topics is not
	// used then, and a topic has as many items in flight as it has hands, and those
	// that its handlers start within a moment. Without, all topics share one feed.
	ByTopic bool

	// BatchSize is the most records of one claim.
	BatchSize int
	// MaxItems and MaxBytes bound what is claimed and not yet settled, of each feed.
	// With ByTopic the hands bound the items.
	MaxItems int
	MaxBytes int

	Lease time.Duration
	// MaxProcessing ends a handling, counted from Take, or with AwaitStart from
	// Started: it has failed then, and its lease is lost. What waits longer than
	// that before its handling is given back, so that other processes get a
	// chance.
	MaxProcessing time.Duration

	// PollInterval is the longest wait between claims that find nothing.
	PollInterval time.Duration
	// MaxErrorBackoff is the longest wait between claims that fail.
	MaxErrorBackoff time.Duration
	// FlushInterval is the longest that an outcome waits for others.
	FlushInterval time.Duration

	// Pipelined hands out later records of a key while earlier ones are not
	// settled: the user keeps their order, and gives the later ones back when
	// an earlier one fails.
	Pipelined bool
	// AwaitStart: what was taken is handled only once Started has said so, and
	// may have to wait for that.
	AwaitStart bool

	// OnDead is told of records that went dead, after the store knows it.
	OnDead func(rec *outmill.Record, reason string)
	// OnError is called with each error that is otherwise only logged. A panic of
	// it is logged.
	OnError func(err error)
	// Running is shared by workers that must not deliver one record twice at a
	// time.
	Running *Registry
}

const (
	// storeTimeout bounds each call to the store.
	storeTimeout = 30 * time.Second
	// claimGrace is how long a claim may go on when the worker stops.
	claimGrace = 5 * time.Second
)

// outlast returns a context for a claim: it ends a grace after ctx, since a
// claim that the store carried out but that nobody heard of holds its records
// until the lease ends.
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
