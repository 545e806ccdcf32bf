package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func unreadableSentences() []sentence {
	list := []sentence{
		{"a claim passes over a thousand records that cannot be decoded", unreadableMany},
		{"what waits behind a record that cannot be decoded follows it to death with KeyPark, and is delivered otherwise", unreadableKey},
		{"Get and List name what of a record cannot be decoded, and show the rest", unreadableShown},
		{"Edit of a record whose content cannot be decoded sets all that cannot, or changes nothing", unreadableEdit},
		{"an ack of records of which one cannot be decoded any more acks the others", unreadableAck},
		{"a record with readable content is delivered after a Requeue if only its state could not be decoded", unreadableRequeue},
	}
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		list = append(list, sentence{
			fmt.Sprint("a record that cannot be decoded goes dead alone, with the reason, in a claim with the order ", order),
			func(e *env) { unreadableDies(e, order) },
		})
	}
	return append(list, sentence{
		"Get, List, Requeue and Delete work on a record that cannot be decoded, whatever its status", unreadableRepairs,
	})
}

// breaker returns the harness as a Breaker, or skips the sentence.
func (e *env) breaker() Breaker {
	e.T.Helper()
	b, ok := e.Harness.(Breaker)
	if !ok {
		e.T.Skip("the harness is no Breaker")
	}
	return b
}

// requireUnreadable checks a record that a claim could not decode.
func requireUnreadable(e *env, r *outmill.Record, column string) {
	e.T.Helper()
	got := e.Get(r)
	require.Equal(e.T, outmill.StatusDead, got.Status, column)
	require.Contains(e.T, got.LastError, storekit.UnreadableError, column)
	require.Contains(e.T, got.LastError, column)
}

// inEachWait appends a record that is due in each way, each with a neighbour behind it.
func (e *env) inEachWait() (due, neighbours []*outmill.Record) {
	e.T.Helper()
	for i, way := range []string{"ready", "retry", "delayed", "expired lease"} {
		r := suite.Rec(orders, way, suite.WithKey(fmt.Sprint("k", i)))
		r.Metadata = map[string]string{"a": "b"}
		if way == "delayed" {
			r.Delay = time.Hour
		}
		neighbour := suite.Rec(orders, "behind "+way, suite.WithKey(r.Key))
		due, neighbours = append(due, r), append(neighbours, neighbour)
	}
	e.Filled(due[1], due[3])
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Abandon(time.Hour, found["retry"])
	e.Append(due[0], due[2])
	e.Append(neighbours...)
	e.Elapse(2 * time.Hour)
	return due, neighbours
}

func unreadableDies(e *env, order outmill.Order) {
	b := e.breaker()
	for _, column := range b.Columns() {
		due, neighbours := e.inEachWait()
		for _, r := range due {
			b.Break(e.Store, r.ID, column)
		}
		claimed := e.ClaimAll(suite.InOrder(order, outmill.KeyBlock))
		require.ElementsMatch(e.T, suite.Names(neighbours), suite.Names(claimed), column)
		for _, r := range due {
			requireUnreadable(e, r, column)
		}
		e.Delete(slices.Concat(due, neighbours)...)
		require.Empty(e.T, e.List(outmill.ListQuery{}), column)
	}
}

func unreadableMany(e *env) {
	b := e.breaker()
	n := suite.Large(1200)
	records := suite.Recs(orders, suite.WithKey("k"), suite.Numbered(n)...)
	e.Filled(append(records, suite.Rec(orders, "good", suite.WithKey("k")))...)
	for i, r := range records {
		columns := b.Columns()
		b.Break(e.Store, r.ID, columns[i%len(columns)])
	}
	e.RequireNames([]string{"good"}, e.ClaimAll(suite.ByKey, suite.Limit(10)))
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead, Limit: n + 1}), n)
}

func unreadableKey(e *env) {
	b := e.breaker()
	for _, column := range b.Columns() {
		for _, policy := range []outmill.KeyPolicy{outmill.KeyBlock, outmill.KeySkip, outmill.KeyPark} {
			first, later := suite.Rec(orders, "first", suite.WithKey("k")), suite.Rec(orders, "later", suite.WithKey("k"))
			e.Filled(first, later)
			b.Break(e.Store, first.ID, column)
			parks := policy == outmill.KeyPark && e.Get(first).Key == "k"
			names := suite.Names(e.ClaimAll(suite.InOrder(outmill.OrderKey, policy)))
			requireUnreadable(e, first, column)
			require.Zero(e.T, e.Get(first).Attempts, "nobody has handled it")
			require.Empty(e.T, e.Get(first).History)
			if parks {
				require.Empty(e.T, names, column)
				require.Equal(e.T, storekit.ParkedError, e.Get(later).LastError, column)
			} else {
				require.Equal(e.T, []string{"later"}, names, column)
			}
			e.Delete(first, later)
		}
	}
}

func unreadableAck(e *env) {
	b := e.breaker()
	for _, column := range b.Columns() {
		e.Filled(suite.Rec(orders, "first"), suite.Rec(orders, "broken", suite.WithKey("k")), suite.Rec(orders, "last"))
		found := e.ClaimNamed(outmill.NewOwnerToken())
		b.Break(e.Store, found["broken"].ID, column)
		e.Ack(found["first"], found["broken"], found["last"])
		e.RequireProcessed(found["first"])
		e.RequireProcessed(found["last"])
		e.Delete(found["broken"])
	}
}

func unreadableShown(e *env) {
	b := e.breaker()
	for _, column := range b.Columns() {
		r := suite.Rec(orders, "m1")
		e.Filled(r)
		require.Empty(e.T, e.Get(r).Unreadable)
		b.Break(e.Store, r.ID, column)
		got := e.Get(r)
		require.Contains(e.T, got.Unreadable, column)
		require.Equal(e.T, []string{"m1", orders, suite.Group}, []string{got.MessageID, got.Topic, got.Group}, column)
		e.RequireNames([]string{"m1"}, e.List(outmill.ListQuery{Topic: orders}))
		e.Delete(r)
	}
}

func unreadableRepairs(e *env) {
	b := e.breaker()
	for _, column := range b.Columns() {
		e.Filled(suite.Recs(orders, suite.Plain, "leased", "dead", "processed")...)
		found := e.ClaimNamed(outmill.NewOwnerToken())
		e.Fail(found["dead"])
		e.Ack(found["processed"])
		e.Append(suite.Rec(orders, "pending"))
		records := e.List(outmill.ListQuery{})
		for _, r := range records {
			b.Break(e.Store, r.ID, column)
			require.Equal(e.T, r.Status, e.Get(r).Status, column)
		}
		require.Len(e.T, e.List(outmill.ListQuery{}), len(records), column)
		require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), 1, column)
		require.Equal(e.T, 1, e.Requeue(found["dead"]), column)
		require.Equal(e.T, outmill.StatusPending, e.Get(found["dead"]).Status, column)
		require.Equal(e.T, len(records), e.Delete(records...), column)
		require.Empty(e.T, e.List(outmill.ListQuery{}), column)
	}
}

func unreadableEdit(e *env) {
	b := e.breaker()
	bench := e.repairs()
	for _, column := range b.Columns() {
		r := e.dead()
		b.Break(e.Store, r.ID, column)
		broken := e.Get(r)
		edit := roles.Edit{Seen: storekit.FingerprintOf(broken), Payload: []byte("new"), Metadata: map[string]string{"new": "1"}}
		half := edit
		half.Metadata = nil
		if broken.Payload == nil {
			half.Payload, half.Metadata = nil, edit.Metadata
		}
		if broken.Payload == nil || broken.Metadata == nil {
			_, err := bench.Edit(e.Ctx, r.ID, half)
			require.ErrorIs(e.T, err, outmill.ErrInvalidRecord, column)
			require.Equal(e.T, broken, e.Get(r), column)
		}
		_, err := bench.Edit(e.Ctx, r.ID, edit)
		require.NoError(e.T, err, column)
		got := e.Get(r)
		require.Equal(e.T, edit.Payload, got.Payload, column)
		require.Equal(e.T, edit.Metadata, got.Metadata, column)
		e.Delete(r)
	}
}

func unreadableRequeue(e *env) {
	b := e.breaker()
	for _, column := range b.Columns() {
		r := suite.Rec(orders, "m1")
		r.Metadata = map[string]string{"a": "b"}
		e.Filled(r)
		b.Break(e.Store, r.ID, column)
		require.Empty(e.T, e.ClaimAll(), column)
		require.Equal(e.T, 1, e.Requeue(r), column)
		if e.Get(r).Unreadable == "" {
			e.ClaimOne(outmill.NewOwnerToken(), "m1")
		} else {
			require.Empty(e.T, e.ClaimAll(), column)
			requireUnreadable(e, r, column)
		}
		e.Delete(r)
	}
}
