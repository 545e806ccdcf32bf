package storetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func callSentences() []sentence {
	return []sentence{
		{"calls other than Append and TxOf take no notice of a transaction in the context", otherCallsTakeNoNotice},
		{"every call on a closed store is ErrClosed", closedStore},
		{"a store may be closed twice", closedTwice},
		{"closing one store leaves another on the same database", closeLeavesOthers},
		{"what a closed store had leased comes to another when the lease ends", closeKeepsLeases},
		{"every call with a context that was cancelled is its error, and does nothing", cancelledCalls},
		{"every call with a context whose deadline has passed is its error", lateCalls},
		{"a call cut short by its context is done whole or not at all", cutShort},
	}
}

// storeCall is a method that speaks to the database, with arguments that would
// change something if it went through.
type storeCall struct {
	name string
	do   func(context.Context, outmill.Store) error
}

func storeCalls() []storeCall {
	one := []outmill.Lease{{ID: outmill.WorkItemID{1}, Owner: outmill.OwnerToken{1}, Claim: 1}}
	return []storeCall{
		{"Append", func(ctx context.Context, s outmill.Store) error { return s.Append(ctx, rec(orders, "appended")) }},
		{"RegisterGroup", func(ctx context.Context, s outmill.Store) error {
			return s.RegisterGroup(ctx, outmill.Registration{Group: "new"})
		}},
		{"Claim", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Claim(ctx, request(outmill.NewOwnerToken()))
			return err
		}},
		{"Claim by key", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Claim(ctx, request(outmill.NewOwnerToken(), byKey))
			return err
		}},
		{"Extend", func(ctx context.Context, s outmill.Store) error {
			_, err := s.Extend(ctx, time.Minute, one)
			return err
		}},
		{"Ack", func(ctx context.Context, s outmill.Store) error { return s.Ack(ctx, "", one) }},
		{"Abandon", func(ctx context.Context, s outmill.Store) error { return s.Abandon(ctx, delayedBy(0, "", one)) }},
		{"Fail", func(ctx context.Context, s outmill.Store) error { return s.Fail(ctx, failures(false, "", one)) }},
		{"Fail with Park", func(ctx context.Context, s outmill.Store) error { return s.Fail(ctx, failures(true, "", one)) }},
		{"Release", func(ctx context.Context, s outmill.Store) error { return s.Release(ctx, one) }},
		{"Snooze", func(ctx context.Context, s outmill.Store) error { return s.Snooze(ctx, delayedBy(0, "", one)) }},
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
	e.filled(rec(orders, "m1"))
	for _, call := range storeCalls() {
		err := call.do(foreign(e.ctx), e.store)
		switch call.name {
		case "Append":
			require.ErrorIs(e.t, err, outmill.ErrForeignTx, call.name)
		case "Get":
			require.ErrorIs(e.t, err, outmill.ErrNotFound, call.name)
		default:
			require.NoError(e.t, err, call.name)
		}
	}
}

func closedStore(e *env) {
	e.filled(rec(orders, "m1"))
	require.NoError(e.t, e.store.Close())
	for _, call := range storeCalls() {
		require.ErrorIs(e.t, call.do(e.ctx, e.store), outmill.ErrClosed, call.name)
	}
}

func closedTwice(e *env) {
	require.NoError(e.t, e.store.Close())
	require.NoError(e.t, e.store.Close())
}

func closeLeavesOthers(e *env) {
	e.filled(rec(orders, "m1"))
	other := e.on(e.reopen())
	require.NoError(e.t, e.store.Close())
	other.append(rec(orders, "m2"))
	require.Len(e.t, other.claimAll(), 2)
}

func closeKeepsLeases(e *env) {
	e.filled(rec(orders, "m1"))
	other := e.on(e.reopen())
	e.claimOne(outmill.NewOwnerToken(), "m1")
	require.NoError(e.t, e.store.Close())
	require.Empty(e.t, other.claimAll())
	other.elapse(leaseOf + time.Minute)
	other.claimOne(outmill.NewOwnerToken(), "m1")
}

func cancelledCalls(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	e.requireNoCall(ctx, context.Canceled)
}

func lateCalls(e *env) {
	ctx, cancel := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
	defer cancel()
	e.requireNoCall(ctx, context.DeadlineExceeded)
}

func (e *env) requireNoCall(ctx context.Context, want error) {
	e.t.Helper()
	e.filled(rec(orders, "m1"))
	before := e.list(outmill.ListQuery{})
	for _, call := range storeCalls() {
		require.ErrorIs(e.t, call.do(ctx, e.store), want, call.name)
	}
	require.Equal(e.t, before, e.list(outmill.ListQuery{}))
	require.Len(e.t, e.groups(), 1)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

// cutShort appends batches under contexts that end at any moment.
func cutShort(e *env) {
	const each = 20
	e.register(group)
	longest := time.Millisecond
	for i := range 30 {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(e.ctx, longest*time.Duration(i)/20)
		err := e.store.Append(ctx, recs("t"+numbered(i + 1)[i], plain, numbered(each)...)...)
		cancel()
		if err == nil {
			longest = max(time.Since(begin), time.Microsecond)
		}
		n := len(e.list(outmill.ListQuery{Topic: "t" + numbered(i + 1)[i]}))
		if err == nil {
			require.Equal(e.t, each, n, "appended")
		} else {
			require.Contains(e.t, []int{0, each}, n, "appended by a call that was cut short: %v", err)
		}
	}
}
