package memdriver_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/txtest"
)

// noting is a driver.Noter.
type noting struct {
	memdriver.Driver
	notes, others atomic.Int64
}

func (n *noting) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	n.others.Add(1)
	return n.Driver.Within(ctx, caller, fn)
}

func (n *noting) Note(ctx context.Context, caller any, entry driver.Entry, keep, wait time.Duration, lease outmill.Lease) (
	added bool, err error) {
	n.notes.Add(1)
	err = n.Driver.Within(ctx, caller, func(t driver.Tx) error {
		held := func() error {
			rows, err := t.Find(ctx, []outmill.WorkItemID{lease.ID})
			if err != nil || lease.ID.IsZero() {
				return err
			}
			if len(rows) == 0 || rows[0].Stage != driver.Leased || rows[0].Owner != lease.Owner.String() || rows[0].Claims != lease.Claim {
				return outmill.ErrLeaseLost
			}
			return nil
		}
		if err := held(); err != nil {
			return err
		}
		entry.Made = t.State().Now
		entry.At = entry.Made.After(keep)
		if added, err = t.Add(ctx, wait, entry); err != nil {
			return err
		}
		return held()
	})
	return added && err == nil, err
}

// The engine does the same with a driver that notes messages in one round trip.
func TestTransactions_Noter(t *testing.T) {
	suite := suiteOf(0, nil)
	suite.New = func(t *testing.T, o storetest.Options) storetest.Harness {
		h := newHarness(t, o, 0)
		h.store.Engine = engine.New(&noting{Driver: memdriver.Driver{Database: h.store.db}}, engine.Config{Name: "memory", Retain: o.Retain})
		return h
	}
	txtest.Run(t, txSuite(suite))
}

func TestPutNote_IsOneCallOfANoter(t *testing.T) {
	t.Parallel()
	db := memdriver.New()
	d := &noting{Driver: memdriver.Driver{Database: db}}
	e := engine.New(d, engine.Config{Name: "memory"})
	t.Cleanup(func() { _ = e.Close() })
	require.NoError(t, e.Ensure(t.Context()))
	require.NoError(t, e.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	record := rec("m1", "")
	record.Topic = topic
	require.NoError(t, e.Append(t.Context(), record))
	found, err := e.Claim(t.Context(), outmill.ClaimRequest{Owner: a, Group: group, Limit: 1, Lease: time.Minute})
	require.NoError(t, err)
	require.Len(t, found, 1)
	note := roles.Note{Consumer: "c", Key: "m1", Retention: time.Hour, Lease: found[0].Lease()}

	tx := db.Begin()
	ctx := d.WithTx(t.Context(), tx)
	for _, want := range []bool{false, true} {
		duplicate, err := e.PutNote(ctx, note, 0)
		require.NoError(t, err)
		require.Equal(t, want, duplicate)
	}
	late := note
	late.Key, late.Lease.Claim = "m2", late.Lease.Claim+1
	_, err = e.PutNote(ctx, late, 0)
	require.ErrorIs(t, err, outmill.ErrLeaseLost)
	other := db.Begin()
	_, err = e.PutNote(d.WithTx(t.Context(), other), note, 0)
	require.ErrorIs(t, err, roles.ErrNoteBusy)
	require.NoError(t, other.Rollback())
	require.NoError(t, tx.Commit())
	require.EqualValues(t, []int64{4, 0}, []int64{d.notes.Load(), d.others.Load()})

	_, err = e.PutNote(ctx, note, 0)
	require.ErrorIs(t, err, outmill.ErrInvalidTx)
	noted, err := e.HasNote(t.Context(), "c", "m1")
	require.NoError(t, err)
	require.True(t, noted)
	require.NoError(t, e.Close())
	_, err = e.PutNote(ctx, note, 0)
	require.ErrorIs(t, err, outmill.ErrClosed)
	require.NotErrorIs(t, err, storekit.ErrBusy)
}
