package storetest

import (
	"context"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func callSentences() []sentence {
	return []sentence{
		{"calls other than Append and TxOf take no notice of a transaction in the context", otherCallsTakeNoNotice},
		{"every call on a closed store is ErrClosed", closedStore},
		{"a store may be closed twice", closedTwice},
		{"Close lets attached workers settle their leases first", closeWaitsForWorkers},
		{"closing one store leaves another on the same database", closeLeavesOthers},
		{"what a closed store had leased comes to another when the lease ends", closeKeepsLeases},
		{"every call with a context that was cancelled is its error, and does nothing", cancelledCalls},
		{"every call with a context whose deadline has passed is its error", lateCalls},
		{"a call cut short by its context is done whole or not at all", cutShort},
	}
}

// storeCall calls a method that uses the database, with arguments that would change
// something if the call succeeded.
type storeCall struct {
	name string
	do   func(context.Context, outmill.Store) error
}

func storeCalls() []storeCall {
	one := []outmill.Lease{{ID: outmill.WorkItemID{1}, Owner: outmill.OwnerToken{1}, Claim: 1}}
	return []storeCall{
		{"Append", func(ctx context.Context, s outmill.Store) error { return s.Append(ctx, suite.Rec(orders, "appended")) }},
		{"RegisterGroup", func(ctx context.Context, s outmill.Store) error {
			return s.RegisterGroup(ctx, outmill.Registration{Group: "new"})
		}},
		{"Claim", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Claim(ctx, suite.Request(outmill.NewOwnerToken()))
			return err
		}},
		{"Claim by key", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Claim(ctx, suite.Request(outmill.NewOwnerToken(), suite.ByKey))
			return err
		}},
		{"Extend", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Extend(ctx, time.Minute, one)
			return err
		}},
		{"Ack", func(ctx context.Context, s outmill.Store) error { return s.Ack(ctx, "", one) }},
		{"Abandon", func(ctx context.Context, s outmill.Store) error { return s.Abandon(ctx, suite.DelayedBy(0, "", one)) }},
		{"Fail", func(ctx context.Context, s outmill.Store) error { return s.Fail(ctx, suite.Failures(false, "", one)) }},
		{"Fail with Park", func(ctx context.Context, s outmill.Store) error { return s.Fail(ctx, suite.Failures(true, "", one)) }},
		{"Release", func(ctx context.Context, s outmill.Store) error { return s.Release(ctx, one) }},
		{"Snooze", func(ctx context.Context, s outmill.Store) error { return s.Snooze(ctx, suite.DelayedBy(0, "", one)) }},
		{"ReapExpired", counted(outmill.Store.ReapExpired)},
		{"Stats", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Stats(ctx, 0)
			return err
		}},
		{"Groups", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Groups(ctx)
			return err
		}},
		{"DropGroup", func(ctx context.Context, s outmill.Store) error {
			_, err := s.DropGroup(ctx, group)
			return err
		}},
		{"List", func(ctx context.Context, s outmill.Store) error {
			_, err := s.List(ctx, outmill.ListQuery{})
			return err
		}},
		{"Get", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Get(ctx, outmill.WorkItemID{1})
			return err
		}},
		{"Requeue", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Requeue(ctx, outmill.WorkItemID{1})
			return err
		}},
		{"Delete", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Delete(ctx, outmill.WorkItemID{1})
			return err
		}},
		{"DeleteProcessed", counted(outmill.Store.DeleteProcessed)},
		{"ExpireDue", counted(outmill.Store.ExpireDue)},
		{"DeleteDedupKeys", counted(outmill.Store.DeleteDedupKeys)},
		{"Maintain", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Maintain(ctx)
			return err
		}},
		{"ExpireRegistrations", func(ctx context.Context, s outmill.Store) error {
			_, _, err := s.ExpireRegistrations(ctx, 10)
			return err
		}},
		{"Ensure", func(ctx context.Context, s outmill.Store) error { return s.Ensure(ctx) }},
	}
}

func counted(method func(outmill.Store, context.Context, int) (int, error)) func(context.Context, outmill.Store) error {
	return func(ctx context.Context, s outmill.Store) error {
		_, err := method(s, ctx, 10)
		return err
	}
}

func otherCallsTakeNoNotice(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for _, call := range storeCalls() {
		err := call.do(suite.Foreign(e.Ctx), e.Store)
		switch call.name {
		case "Append":
			require.ErrorIs(e.T, err, outmill.ErrForeignTx, call.name)
		case "Get":
			require.ErrorIs(e.T, err, outmill.ErrNotFound, call.name)
		default:
			require.NoError(e.T, err, call.name)
		}
	}
}

func closedStore(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	require.NoError(e.T, e.Store.Close())
	for _, call := range storeCalls() {
		require.ErrorIs(e.T, call.do(e.Ctx, e.Store), outmill.ErrClosed, call.name)
	}
}

func closedTwice(e *env) {
	require.NoError(e.T, e.Store.Close())
	require.NoError(e.T, e.Store.Close())
}

func closeLeavesOthers(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	other := &env{e.On(e.Reopen())}
	require.NoError(e.T, e.Store.Close())
	other.Append(suite.Rec(orders, "m2"))
	require.Len(e.T, other.ClaimAll(), 2)
}

func closeKeepsLeases(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	other := &env{e.On(e.Reopen())}
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.NoError(e.T, e.Store.Close())
	require.Empty(e.T, other.ClaimAll())
	other.Elapse(leaseOf + time.Minute)
	other.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func cancelledCalls(e *env) {
	ctx, cancel := context.WithCancel(e.Ctx)
	cancel()
	e.requireNoCall(ctx, context.Canceled)
}

func lateCalls(e *env) {
	ctx, cancel := context.WithDeadline(e.Ctx, time.Now().Add(-time.Second))
	defer cancel()
	e.requireNoCall(ctx, context.DeadlineExceeded)
}

func (e *env) requireNoCall(ctx context.Context, want error) {
	e.T.Helper()
	e.Filled(suite.Rec(orders, "m1"))
	before := e.List(outmill.ListQuery{})
	for _, call := range storeCalls() {
		require.ErrorIs(e.T, call.do(ctx, e.Store), want, call.name)
	}
	require.Equal(e.T, before, e.List(outmill.ListQuery{}))
	require.Len(e.T, e.groups(), 1)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

// cutShort appends batches with contexts that end at random moments.
func cutShort(e *env) {
	const each = 20
	e.Register(group)
	longest := time.Millisecond
	for i := range 30 {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(e.Ctx, longest*time.Duration(i)/20)
		err := e.Store.Append(ctx, suite.Recs("t"+suite.Numbered(i + 1)[i], suite.Plain, suite.Numbered(each)...)...)
		cancel()
		if err == nil {
			longest = max(time.Since(begin), time.Microsecond)
		}
		n := len(e.List(outmill.ListQuery{Topic: "t" + suite.Numbered(i + 1)[i]}))
		if err == nil {
			require.Equal(e.T, each, n, "appended")
		} else {
			require.Contains(e.T, []int{0, each}, n, "appended by a call that was cut short: %v", err)
		}
	}
}
