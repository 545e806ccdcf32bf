package storetest

import (
	"context"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func letterSentences() []sentence {
	return []sentence{
		{"DeadLetters has the head of each parked key with its error and what waits behind it", lettersOfKeys},
		{"DeadLetters has dead records that have parked nothing, and nobody waits for them", lettersAlone},
		{"DeadLetters has no record that is not dead, nor one that another has parked", lettersLeaveOthers},
		{"the next parked record is the head when the head is gone", lettersNextHead},
		{"records that are appended to a parked key wait behind its head once a claim has met them", lettersAppended},
		{"DeadLetters returns the heads that match every field of the query", lettersByFields},
		{"pages of DeadLetters have each head once", lettersPages},
		{"a page of DeadLetters looks at 10,000 records at most, and the next one goes on behind it", lettersBounded},
		{"a page of DeadLetters passes by all that is settled", lettersBehindSettled},
		{"queries of DeadLetters that no dead record can match are refused", lettersRefused},
		{"DeadLetters on a closed store, or in a context that has ended, is an error", lettersEnded},
	}
}

// letters returns the dead letters that match, in pages.
func (e *env) letters(query outmill.ListQuery) (all []roles.DeadLetter) {
	e.T.Helper()
	bench := e.repairs()
	query.Content = true
	for range maxPages {
		page, err := bench.DeadLetters(e.Ctx, query)
		require.NoError(e.T, err, "DeadLetters")
		if all = append(all, page.Letters...); page.Done {
			return all
		}
		require.Positive(e.T, slices.Compare(page.Next[:], query.After[:]), "the page does not go on")
		query.After = page.Next
	}
	require.Fail(e.T, "the pages do not end")
	return nil
}

// waiting has what waits, by the name of the head.
func waiting(letters []roles.DeadLetter) map[string]int {
	found := map[string]int{}
	for _, l := range letters {
		found[l.Record.MessageID] = l.Waiting
	}
	return found
}

// parkedKeys parks a key of two topics and of another group; the keys have 2, 3 and 1 records
// behind their heads.
func (e *env) parkedKeys() {
	e.T.Helper()
	e.Register(group)
	e.Append(slices.Concat(suite.Keyed("a", "a1", "a2", "a3"), suite.Keyed("b", "b1", "b2", "b3", "b4"),
		suite.Recs("invoices", suite.WithKey("a"), "i1", "i2"))...)
	for range 3 {
		e.ParkAndMeet(e.Claim(outmill.NewOwnerToken(), suite.ParkOrder, suite.Limit(1))...)
	}
}

func lettersOfKeys(e *env) {
	e.repairs()
	e.parkedKeys()
	letters := e.letters(outmill.ListQuery{})
	require.Equal(e.T, map[string]int{"a1": 2, "b1": 3, "i1": 1}, waiting(letters))
	for _, l := range letters {
		whole := e.Get(l.Record)
		whole.History = nil
		require.Equal(e.T, whole, l.Record)
		require.Equal(e.T, "poison", l.Record.LastError)
	}
}

func lettersAlone(e *env) {
	e.repairs()
	e.Filled(suite.Rec(orders, "keyless"), suite.Rec(orders, "keyed", suite.WithKey("k")), suite.Rec(orders, "later", suite.WithKey("k")))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Fail(found["keyless"], found["keyed"])
	e.Release(found["later"])
	require.Equal(e.T, map[string]int{"keyless": 0, "keyed": 0}, waiting(e.letters(outmill.ListQuery{})))
}

func lettersLeaveOthers(e *env) {
	e.repairs()
	e.Parked("m1", "m2")
	e.Append(suite.Recs(orders, suite.Plain, "processed", "leased")...)
	found := e.ClaimNamed(outmill.NewOwnerToken(), suite.ParkOrder)
	e.Ack(found["processed"])
	e.Append(suite.Rec(orders, "pending"))
	require.Equal(e.T, map[string]int{"m1": 1}, waiting(e.letters(outmill.ListQuery{})))
}

func lettersNextHead(e *env) {
	e.repairs()
	records := e.Parked("m1", "m2", "m3")
	e.Delete(records[0])
	require.Equal(e.T, map[string]int{"m2": 1}, waiting(e.letters(outmill.ListQuery{})))
	e.Requeue(records[1])
	require.Empty(e.T, e.letters(outmill.ListQuery{}))
}

func lettersAppended(e *env) {
	e.repairs()
	e.Parked("m1", "m2")
	e.Append(suite.Keyed("k", "m3", "m4")...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	require.Equal(e.T, map[string]int{"m1": 3}, waiting(e.letters(outmill.ListQuery{})))
}

func lettersByFields(e *env) {
	e.repairs()
	e.parkedKeys()
	for _, c := range []struct {
		want  map[string]int
		query outmill.ListQuery
	}{
		{map[string]int{"a1": 2, "b1": 3}, outmill.ListQuery{Topic: orders}},
		{map[string]int{"a1": 2, "i1": 1}, outmill.ListQuery{Key: "a"}},
		{map[string]int{"a1": 2}, outmill.ListQuery{Key: "a", Topic: orders, Status: outmill.StatusDead}},
		{map[string]int{"a1": 2, "b1": 3, "i1": 1}, outmill.ListQuery{ErrorText: "poi"}},
		{map[string]int{}, outmill.ListQuery{ErrorText: "parked"}},
		{map[string]int{}, outmill.ListQuery{MessageID: "a2"}},
		{map[string]int{}, outmill.ListQuery{Group: "others"}},
	} {
		require.Equal(e.T, c.want, waiting(e.letters(c.query)), "%+v", c.query)
	}
}

func lettersPages(e *env) {
	e.repairs()
	e.parkedKeys()
	want := e.letters(outmill.ListQuery{})
	for limit := 1; limit < 4; limit++ {
		require.Equal(e.T, want, e.letters(outmill.ListQuery{Limit: limit}), limit)
		page, err := e.repairs().DeadLetters(e.Ctx, outmill.ListQuery{Limit: limit})
		require.NoError(e.T, err)
		require.Len(e.T, page.Letters, limit)
	}
	require.Len(e.T, want, 3)
}

// lettersBounded has a head behind more than one page of records that it does not match.
func lettersBounded(e *env) {
	e.Long("pages among 10,000 records")
	bench := e.repairs()
	const most = roles.MaxExamined
	e.Register(group)
	for some := range slices.Chunk(suite.Numbered(most+1), 1000) {
		e.Append(suite.Recs(orders, suite.Plain, some...)...)
		e.Fail(e.ClaimN(outmill.NewOwnerToken(), len(some))...)
	}
	last := suite.Rec(orders, "last", suite.WithKey("k"))
	last.ID = outmill.WorkItemID{0xff, 15: 1}
	e.Append(last)
	e.Park(e.ClaimOne(outmill.NewOwnerToken(), "last", suite.ParkOrder))
	query := outmill.ListQuery{Key: "k"}
	first, err := bench.DeadLetters(e.Ctx, query)
	require.NoError(e.T, err)
	require.Empty(e.T, first.Letters)
	require.False(e.T, first.Done)
	require.LessOrEqual(e.T, first.Examined, most)
	require.Greater(e.T, first.Examined, most/2)
	require.Equal(e.T, map[string]int{"last": 0}, waiting(e.letters(query)))
}

// lettersBehindSettled settles more records than a page looks at. A store may keep such rows for a while.
func lettersBehindSettled(e *env) {
	e.Long("10,000 settled records")
	e.Register(group)
	for some := range slices.Chunk(suite.Numbered(roles.MaxExamined+1), 1000) {
		e.Append(suite.Recs(orders, suite.Plain, some...)...)
		claimed := e.ClaimN(outmill.NewOwnerToken(), len(some))
		if e.Options.Retain == 0 {
			e.Ack(claimed...)
			continue
		}
		_, err := e.Store.Delete(e.Ctx, suite.IDs(claimed)...)
		require.NoError(e.T, err)
	}
	e.Append(suite.Rec(orders, "last", suite.Plain))
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "last"))
	page, err := e.repairs().DeadLetters(e.Ctx, outmill.ListQuery{Content: true})
	require.NoError(e.T, err)
	require.Equal(e.T, map[string]int{"last": 0}, waiting(page.Letters))
	require.True(e.T, page.Done)
	requeued, err := e.repairs().RequeueWhere(e.Ctx, outmill.ListQuery{Group: group})
	require.NoError(e.T, err)
	require.Equal(e.T, 1, requeued.Changed)
}

func lettersRefused(e *env) {
	bench := e.repairs()
	for _, query := range []outmill.ListQuery{
		{Limit: -1}, {Status: outmill.StatusPending}, {Status: "done"}, {Key: "a\x00b"}, {ErrorText: "\xff"},
	} {
		_, err := bench.DeadLetters(e.Ctx, query)
		e.RequireRefusal(err, query)
	}
}

func lettersEnded(e *env) {
	bench := e.repairs()
	e.Parked("m1")
	cancelled, cancel := context.WithCancel(e.Ctx)
	cancel()
	other := e.Reopen()
	closed, ok := outmill.As[roles.Repairs](other)
	require.True(e.T, ok)
	require.NoError(e.T, other.Close())
	_, err := bench.DeadLetters(cancelled, outmill.ListQuery{})
	require.ErrorIs(e.T, err, context.Canceled)
	_, err = closed.DeadLetters(e.Ctx, outmill.ListQuery{})
	require.ErrorIs(e.T, err, outmill.ErrClosed)
}
