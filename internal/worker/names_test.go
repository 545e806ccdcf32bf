package worker_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

// calls keeps what a worker asks of a queue.
type calls struct {
	outmill.Queue
	claims chan outmill.ClaimRequest
	fails  chan outmill.Settlement
}

func (c calls) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	select {
	case c.claims <- req:
	default:
	}
	return c.Queue.Claim(ctx, req)
}

func (c calls) Fail(ctx context.Context, list []outmill.Settlement) error {
	c.fails <- list[0]
	return c.Queue.Fail(ctx, list)
}

func TestWorker_NamesItselfInClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := calls{claims: make(chan outmill.ClaimRequest, 1), fails: make(chan outmill.Settlement, 1)}
	r.append("m1")
	w := r.start(func(c *worker.Config) {
		seen.Queue, c.Name = c.Queue, "host-1:4711"
		c.Queue = seen
	})
	it := r.take(w)
	require.Equal(t, "host-1:4711", (<-seen.claims).Worker)
	it.Fail("poison")
	require.False(t, (<-seen.fails).Unhandled, "the worker has handled it")
}

func TestWorker_SaysThatNobodyHandledASuspect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := calls{claims: make(chan outmill.ClaimRequest, 1), fails: make(chan outmill.Settlement, 1)}
	r.suspect(r.append("killer")[0], 3)
	r.start(func(c *worker.Config) {
		seen.Queue, c.Retry.MaxAttempts = c.Queue, 3
		c.Queue = seen
	})
	require.True(t, (<-seen.fails).Unhandled)
}
