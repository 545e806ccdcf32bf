package memdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
)

// beforeUpdate calls a function before each Update.
type beforeUpdate struct {
	driver.DB
	call func()
}

func (b *beforeUpdate) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	b.call()
	return b.DB.Update(ctx, begin, fn)
}

// A Requeue of a parked key ends although a worker fails the first record of the key again before each of its steps.
func TestRequeue_BesideAWorkerThatFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := memdriver.Driver{Database: memdriver.New()}
	e := engine.New(d, engine.Config{Name: "memory"})
	require.NoError(t, e.Ensure(ctx))
	require.NoError(t, e.RegisterGroup(ctx, outmill.Registration{}))
	head := &outmill.Record{Topic: "orders", Key: "k"}
	require.NoError(t, e.Append(ctx, head))
	work := func() {
		found, err := e.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Limit: 1, Lease: time.Minute, Order: outmill.OrderKey, KeyPolicy: outmill.KeyPark,
		})
		require.NoError(t, err)
		for _, r := range found {
			require.NoError(t, e.Fail(t.Context(), []outmill.Settlement{{Lease: r.Lease(), Err: "bad", Park: true}}))
		}
	}
	work()
	updates := 0
	operator := engine.New(&beforeUpdate{d, func() {
		if updates++; updates > 20 {
			cancel()
		}
		work()
	}}, engine.Config{Name: "memory"})
	requeued, err := operator.Requeue(ctx, head.ID)
	require.NoError(t, err)
	require.NotZero(t, requeued)
	require.NoError(t, operator.Close())
}
