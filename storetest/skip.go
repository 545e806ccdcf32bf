package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func skipSentences() []sentence {
	return []sentence{
		{"Skip of the head of a parked key removes it and brings the others back, in order", skipHead},
		{"Skip brings back what was appended to the parked key later", skipBringsLater},
		{"a key goes on after its head was skipped", skipGoesOn},
		{"a released record that fails parks the rest again", skipParkAgain},
		{"Skip of a parked record behind the head removes it alone, and its key stays parked", skipFollower},
		{"Skip of a dead record that has parked nothing removes it alone", skipAlone},
		{"Skip of a dead record before the head leaves the key parked", skipBeforeHead},
		{"Skip leaves other keys, topics and groups parked", skipOthers},
		{"Skip refuses records that are not dead, and unknown ones", skipAlive},
		{"Skip sets the attempts and expiries of released records to 0, as Requeue does", skipCounts},
		{"Skip releases a key of many records, in order", skipMany},
		{"Skip on a closed store, or in a context that has ended, changes nothing", skipEnded},
	}
}

// skip skips the record, and returns how many records came back.
func (e *env) skip(r *outmill.Record) int {
	e.T.Helper()
	released := 0
	for range maxPages {
		skipped, err := e.repairs().Skip(e.Ctx, r.ID)
		require.NoError(e.T, err, "Skip")
		if released += skipped.Released; skipped.Done {
			return released
		}
	}
	require.Fail(e.T, "Skip does not end")
	return 0
}

func skipHead(e *env) {
	e.repairs()
	records := e.Parked("m1", "m2", "m3")
	require.Equal(e.T, 2, e.skip(records[0]))
	e.RequireGone(records[0])
	e.RequireStatus(outmill.StatusPending, records[1:]...)
	e.RequireNames([]string{"m2", "m3"}, e.ClaimAll(suite.ParkOrder))
}

func skipBringsLater(e *env) {
	e.repairs()
	records := e.Parked("m1", "m2")
	e.Append(suite.Keyed("k", "m3", "m4")...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.Append(suite.Keyed("k", "m5")...)
	require.Equal(e.T, 3, e.skip(records[0]), "m5 was never parked")
	e.RequireNames([]string{"m2", "m3", "m4", "m5"}, e.ClaimAll(suite.ParkOrder))
}

func skipGoesOn(e *env) {
	e.repairs()
	records := e.Parked("m1", "m2")
	e.skip(records[0])
	e.Append(suite.Keyed("k", "m3")...)
	e.RequireNames([]string{"m2", "m3"}, e.ClaimAcked(2))
	e.Append(suite.Keyed("k", "m4")...)
	e.RequireNames([]string{"m4"}, e.ClaimAcked(1))
}

func skipParkAgain(e *env) {
	e.repairs()
	records := e.Parked("m1", "m2", "m3")
	e.skip(records[0])
	e.ParkAndMeet(e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.ParkOrder))
	e.RequireStatus(outmill.StatusDead, records[1:]...)
	require.Equal(e.T, 1, e.skip(records[1]))
	e.RequireNames([]string{"m3"}, e.ClaimAll(suite.ParkOrder))
}

func skipFollower(e *env) {
	e.repairs()
	records := e.Parked("m1", "m2", "m3")
	require.Zero(e.T, e.skip(records[1]))
	e.RequireGone(records[1])
	e.RequireStatus(outmill.StatusDead, records[0], records[2])
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	require.Equal(e.T, 1, e.skip(records[0]))
	e.RequireNames([]string{"m3"}, e.ClaimAll(suite.ParkOrder))
}

func skipAlone(e *env) {
	e.repairs()
	for _, key := range []string{"", "k"} {
		records := suite.Keyed(key, "a"+key, "b"+key)
		e.Filled(records...)
		e.Fail(e.ClaimNamed(outmill.NewOwnerToken())["a"+key])
		leased := e.Get(records[1])
		require.Zero(e.T, e.skip(records[0]))
		e.RequireGone(records[0])
		require.Equal(e.T, leased, e.Get(records[1]))
	}
}

func skipBeforeHead(e *env) {
	e.repairs()
	records := suite.Keyed("k", "m0", "m1", "m2")
	e.Filled(records...)
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m0", suite.ParkOrder))
	e.ParkAndMeet(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
	require.Zero(e.T, e.skip(records[0]))
	e.RequireGone(records[0])
	e.RequireStatus(outmill.StatusDead, records[1:]...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
}

func skipOthers(e *env) {
	e.repairs()
	e.Register("others")
	e.Register(group)
	lists := [][]*outmill.Record{
		suite.Keyed("k", "m1", "m2"), suite.Keyed("K", "K1", "K2"), suite.Recs("invoices", suite.WithKey("k"), "i1", "i2"),
	}
	for _, list := range lists {
		e.Append(list...)
	}
	for _, of := range []string{group, "others"} {
		for range lists {
			e.ParkAndMeet(e.Claim(outmill.NewOwnerToken(), suite.ParkOrder, suite.OfGroup(of), suite.Limit(1))...)
		}
	}
	head := e.List(outmill.ListQuery{Group: group, MessageID: "m1"})
	require.Len(e.T, head, 1)
	require.Equal(e.T, 1, e.skip(head[0]))
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), 10)
	e.RequireNames([]string{"m2"}, e.ClaimAll(suite.ParkOrder))
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder, suite.OfGroup("others")))
}

func skipAlive(e *env) {
	bench := e.repairs()
	r := suite.Rec(orders, "m1")
	e.Filled(r)
	_, err := bench.Skip(e.Ctx, r.ID)
	require.ErrorIs(e.T, err, roles.ErrNotDead, "pending")
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
	_, err = bench.Skip(e.Ctx, r.ID)
	require.ErrorIs(e.T, err, roles.ErrNotDead, "leased")
	e.RequireStatus(outmill.StatusLeased, r)
	_, err = bench.Skip(e.Ctx, outmill.NewWorkItemID())
	require.ErrorIs(e.T, err, outmill.ErrNotFound)
}

func skipCounts(e *env) {
	e.repairs()
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	found := e.ClaimN(outmill.NewOwnerToken(), 2, suite.ParkOrder)
	e.Abandon(0, found[1])
	e.Park(found[0])
	require.Equal(e.T, 1, e.Get(found[1]).Attempts)
	e.skip(found[0])
	after := e.Get(found[1])
	require.Zero(e.T, after.Attempts)
	require.Zero(e.T, after.Expiries)
	require.Equal(e.T, storekit.ParkedError, after.LastError)
	require.False(e.T, after.NextAttemptAt.IsZero())
}

func skipMany(e *env) {
	e.repairs()
	names := suite.Numbered(suite.Large(3000))
	records := e.Parked(names...)
	owner := outmill.NewOwnerToken()
	for e.Get(records[len(records)-1]).Status != outmill.StatusDead {
		require.Empty(e.T, e.ClaimOn(owner, suite.ParkOrder))
	}
	require.Equal(e.T, len(names)-1, e.skip(records[0]))
	e.RequireNames(names[1:], e.ClaimAll(suite.ParkOrder))
}

// skipBesideClaims needs a store that skips in small steps, during which claims park the
// records of the key that they meet again. The first calls of Skip end in the middle, as if
// their processes had been killed.
func skipBesideClaims(e *env) {
	bench := e.repairs()
	names := suite.Numbered(150)
	records := e.Parked(names...)
	owner := outmill.NewOwnerToken()
	for e.Get(records[len(records)-1]).Status != outmill.StatusDead {
		require.Empty(e.T, e.ClaimOn(owner, suite.ParkOrder))
	}
	few := suite.Request(owner, suite.ParkOrder, func(r *outmill.ClaimRequest) { r.Limit = 10 })
	skipped := make(chan error, 1)
	go func() {
		for patience := time.Millisecond; ; patience *= 2 {
			ctx, cancel := context.WithTimeout(e.Ctx, patience)
			result, err := bench.Skip(ctx, records[0].ID)
			cancel()
			switch {
			case suite.EndedByDeadline(err) && e.Ctx.Err() == nil:
			case errors.Is(err, outmill.ErrNotFound) && patience > time.Millisecond:
				// An earlier call has done it, and its answer was lost.
				skipped <- nil
				return
			case err != nil || result.Done:
				skipped <- err
				return
			}
		}
	}()
	var found []*outmill.Record
	for back := false; !back; {
		select {
		case err := <-skipped:
			require.NoError(e.T, err)
			back = true
		default:
		}
		some, err := e.Store.Claim(e.Ctx, few)
		require.NoError(e.T, err)
		found = append(found, some...)
	}
	e.RequireNames(names[1:], append(found, e.ClaimOn(owner, suite.ParkOrder)...))
}

func skipEnded(e *env) {
	bench := e.repairs()
	records := e.Parked("m1", "m2")
	cancelled, cancel := context.WithCancel(e.Ctx)
	cancel()
	other := e.Reopen()
	closed, ok := outmill.As[roles.Repairs](other)
	require.True(e.T, ok)
	require.NoError(e.T, other.Close())
	_, err := bench.Skip(cancelled, records[0].ID)
	require.ErrorIs(e.T, err, context.Canceled)
	_, err = closed.Skip(e.Ctx, records[0].ID)
	require.ErrorIs(e.T, err, outmill.ErrClosed)
	e.RequireStatus(outmill.StatusDead, records...)
}
