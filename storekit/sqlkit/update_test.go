package sqlkit_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

type written struct {
	kind   sqlkit.UpdateKind
	values []any
	seqs   []int64
}

// Rows of which the same is written share a statement, and a time that stays is not written.
func TestUpdates(t *testing.T) {
	t.Parallel()
	ready := func(seq int64) driver.Row {
		return driver.Row{Seq: seq, Line: driver.LineOf("readers", "orders"), Next: driver.Time(seq), Expires: driver.Time(seq)}
	}
	lease := func(seq int64) driver.Change {
		now := ready(seq)
		now.Stage, now.Wake, now.Owner, now.Worker, now.Claims, now.Attempts = driver.Leased, 9, "an owner", "a worker", 1, 1
		return driver.Change{Was: ready(seq), Now: now}
	}
	leased := lease(3).Now
	extended, delayed, failed, broken := leased, ready(4), "an error", ready(5)
	extended.Wake = 20
	delayed.Stage, delayed.Wake, delayed.Next, delayed.Error, delayed.Tried = driver.Delayed, 30, 30, &failed, "tried"
	broken.Broken = "a column"
	unrouted := ready(6)
	unrouted.Group = ""
	var u sqlkit.Updates
	for _, c := range []driver.Change{
		lease(1), {Was: leased, Now: extended}, lease(2), {Was: ready(4), Now: delayed}, {Was: broken, Now: ready(5)},
		{Was: ready(6), Now: unrouted},
	} {
		u.Add(&c)
	}
	var all []written
	collect := func(kind sqlkit.UpdateKind, values []any, seqs []int64) error {
		all = append(all, written{kind, values, seqs})
		return nil
	}
	require.NoError(t, u.Each(collect))
	change := func(values ...any) []any {
		return append(values, 0, 0, 0, "", "", "", false, int64(0), "")
	}
	assert.Equal(t, []written{
		{sqlkit.Lease, []any{int64(9), "an owner", "a worker", 1, 0}, []int64{1, 2}},
		{sqlkit.Extend, []any{int64(20)}, []int64{3}},
		{sqlkit.Change, append(change(int64(driver.Delayed), int64(30), int64(30), nil), failed, "tried"), []int64{4}},
		{sqlkit.Change, append(change(int64(0), int64(0), int64(5), int64(5)), nil, ""), []int64{5}},
		{sqlkit.Change, append(change(int64(0), int64(0), nil, nil), nil, ""), []int64{6}},
	}, all)
	assert.Equal(t, []int64{6}, u.Unrouted)
	// The caller adds a value of its own behind them, which must not change those of the next statement.
	assert.Equal(t, len(all[0].values), cap(all[0].values))

	ended := errors.New("ended")
	calls := 0
	require.ErrorIs(t, u.Each(func(sqlkit.UpdateKind, []any, []int64) error { calls++; return ended }), ended)
	assert.Equal(t, 1, calls)
}
