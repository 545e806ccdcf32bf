package memdriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
)

// counting is a driver that counts what claims read and write.
type counting struct {
	memdriver.Driver
	*counts
}

type counts struct{ held, notes int }

func (d counting) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return d.Driver.Update(ctx, begin, func(t driver.Tx) error { return fn(countingTx{t, d.counts}) })
}

type countingTx struct {
	driver.Tx
	*counts
}

func (t countingTx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	page, err := t.Tx.Page(ctx, ask)
	t.held += len(page.Held)
	return page, err
}

func (t countingTx) Apply(ctx context.Context, c driver.Changes) (driver.Applied, error) {
	t.notes += len(c.Open) + len(c.Drop) + len(c.Notes)
	return t.Tx.Apply(ctx, c)
}

// Where one owner has all keys in work, its claim reads about the rows that it takes, and a claim of another owner reads and writes
// nothing.
func TestClaim_CrowdedKeys(t *testing.T) {
	t.Parallel()
	const keys, each = 20, 100
	seen := &counts{}
	e := engine.New(counting{memdriver.Driver{Database: memdriver.New()}, seen}, engine.Config{Name: "memory"})
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, e.Ensure(t.Context()))
	require.NoError(t, e.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	for i := range keys * each {
		require.NoError(t, e.Append(t.Context(), &outmill.Record{Topic: topic, MessageID: fmt.Sprint(i), Key: fmt.Sprint(i % keys)}))
	}
	claim := func(owner outmill.OwnerToken) []*outmill.Record {
		*seen = counts{}
		found, err := e.Claim(t.Context(), outmill.ClaimRequest{
			Owner: owner, Group: group, Limit: keys, Lease: time.Minute, Order: outmill.OrderKey,
		})
		require.NoError(t, err)
		return found
	}
	mine := claim(a)
	require.Empty(t, claim(b), "it holds all other rows")
	next := 0
	for next < keys*each {
		for _, r := range mine {
			require.Equal(t, fmt.Sprint(next), r.MessageID)
			next++
		}
		require.Empty(t, claim(b))
		require.Equal(t, counts{}, *seen)
		require.NoError(t, e.Ack(t.Context(), group, leases(mine...)))
		mine = claim(a)
		require.LessOrEqual(t, seen.held, 2*keys)
		require.LessOrEqual(t, seen.notes, keys)
	}
}
