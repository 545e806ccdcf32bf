package worker

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// Config has no defaults of its own: the rooms document and set theirs.
type Config struct {
	Queue  outmill.Queue
	Logger watermill.LoggerAdapter

	Group     string
	Topics    outmill.Topics
	Order     outmill.Order
	KeyPolicy outmill.KeyPolicy
	Retry     outmill.RetryPolicy

	// BatchSize is the most records of one claim.
	BatchSize int
	// MaxItems and MaxBytes bound what is claimed and not yet settled.
	MaxItems int
	MaxBytes int

	Lease         time.Duration
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

	// OnDead is told of records that went dead, after the store knows it.
	OnDead func(rec *outmill.Record, reason string)
	// Running is shared by workers that must not deliver one record twice at a
	// time.
	Running *Registry
}

// storeTimeout bounds each call to the store that must not be cut short by a
// shutdown: settling, extending, claiming.
const storeTimeout = 30 * time.Second

// detached returns a context for such a call.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}
