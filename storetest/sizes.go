package storetest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func sizeSentences() []sentence {
	list := []sentence{
		{"what waits behind a record that is too large follows it to death with KeyPark", tooLargeParks},
		{"Claim refuses a negative MaxRecord and a negative MaxAttempts", refuseMaxRecord},
	}
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		list = append(list, sentence{
			fmt.Sprint("a suspect whose attempts are used up goes dead, and the others are returned, in a claim with the order ", order),
			func(e *env) { exhaustedDies(e, order) },
		}, sentence{
			fmt.Sprint("a record that is larger than its publisher can take goes dead alone, in a claim with the order ", order),
			func(e *env) { tooLargeDies(e, order) },
		})
	}
	return list
}

// atMost sets the largest record of a claim.
func atMost(size int) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.MaxRecord = size }
}

// ofBytes is a record with a payload of so many bytes.
func ofBytes(name string, size int) *outmill.Record {
	r := suite.Rec(orders, name, suite.WithKey("k"))
	r.Payload = []byte(strings.Repeat("x", size))
	return r
}

const largest = 20_000

func tooLargeDies(e *env, order outmill.Order) {
	large := []*outmill.Record{ofBytes("large 1", 2*largest), ofBytes("large 2", 10*largest)}
	e.Filled(large[0], ofBytes("small 1", 10), large[1], ofBytes("small 2", largest-1000), ofBytes("as large as it may be", largest))
	names := suite.Names(e.ClaimAll(suite.InOrder(order, outmill.KeyBlock), atMost(largest)))
	require.ElementsMatch(e.T, []string{"small 1", "small 2", "as large as it may be"}, names)
	for _, r := range large {
		got := e.Get(r)
		require.Equal(e.T, outmill.StatusDead, got.Status)
		require.Contains(e.T, got.LastError, storekit.TooLargeError)
		require.Zero(e.T, got.Attempts, "nobody has handled it")
	}
	require.Equal(e.T, 2, e.Requeue(large...))
	require.ElementsMatch(e.T, []string{"large 1", "large 2"}, suite.Names(e.ClaimOn(outmill.NewOwnerToken())), "without a limit")
}

// exhaustedDies has a record end the processes that claim it, as one does that they have no memory for.
func exhaustedDies(e *env, order outmill.Order) {
	const most = 3
	for _, reaped := range []bool{false, true} {
		large := ofBytes("large", 1000)
		e.Filled(large)
		upTo := func(r *outmill.ClaimRequest) { r.MaxAttempts = most }
		for range outmill.SuspectExpiries + most {
			require.Equal(e.T, []string{"large"}, suite.Names(e.ClaimAll(suite.InOrder(order, outmill.KeyBlock), upTo)))
			e.die(reaped)
		}
		e.Append(ofBytes("small 1", 10), ofBytes("small 2", 10))
		names := suite.Names(e.ClaimAll(suite.InOrder(order, outmill.KeyBlock), upTo))
		require.Equal(e.T, []string{"small 1", "small 2"}, names)
		got := e.Get(large)
		require.Equal(e.T, outmill.StatusDead, got.Status)
		require.Equal(e.T, storekit.SuspectError(outmill.SuspectExpiries+most), got.LastError)
		require.Equal(e.T, most, got.Attempts)
		require.Len(e.T, got.History, most)
		require.Equal(e.T, 1, e.Requeue(large))
		require.Equal(e.T, []string{"large"}, suite.Names(e.ClaimAll(upTo)))
		e.Delete(e.List(outmill.ListQuery{})...)
	}
}

func tooLargeParks(e *env) {
	large, later := ofBytes("large", 2*largest), ofBytes("later", 10)
	e.Filled(large, later)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder, atMost(largest)))
	require.Equal(e.T, storekit.ParkedError, e.Get(later).LastError)
	require.Equal(e.T, 2, e.Requeue(large), "the whole key")
}

func refuseMaxRecord(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	_, err := e.Store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken(), atMost(-1)))
	require.ErrorIs(e.T, err, outmill.ErrInvalidConfig)
	_, err = e.Store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken(), func(r *outmill.ClaimRequest) { r.MaxAttempts = -1 }))
	require.ErrorIs(e.T, err, outmill.ErrInvalidConfig)
}
