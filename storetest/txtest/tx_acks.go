package txtest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func txAckSentences() []sentence {
	return []sentence{
		{"an ack in a transaction takes effect when it commits, together with its appends", txAckCommits},
		{"a rollback leaves the lease of an ack as it was", txAckRollsBack},
		{"the ack of a lease that was reaped is ErrLeaseLost", txAckReaped},
		{"the ack of a lease that another owner has taken over is ErrLeaseLost", txAckTakenOver},
		{"the ack of a record that was settled or deleted is ErrLeaseLost", txAckSettled},
		{"one lost lease among others is ErrLeaseLost", txAckOneLost},
		{"the ack of a lease that has ended, and that nobody has taken, is valid", txAckAfterEnd},
		{"an ack without a transaction is ErrNoTx, and with one of another store ErrForeignTx", txAckWithoutTx},
		{"an ack in a transaction by a worker whose name is refused is refused, and acks nothing", txAckBadWorker},
		{"an ack in a transaction keeps the worker's name where the store retains", txAckKeepsWorker},
		{"HoldForTx returns the valid leases, and they end no earlier than it says", txHoldExtends},
		{"HoldForTx with a lease of 0 makes leases ready and leaves their ends as they are", txHoldAsItIs},
		{"a record that was held and is not acked comes again with its attempts", txHeldComesAgain},
		{"two transactions ack two records of one claim at the same time", txAcksInParallel},
		{"no claim or reaper waits for an ack in an open transaction, or hands its record out", txAckIsSkipped},
		{"the later records of a key wait until the transaction with the ack has ended", txAckHoldsKey},
		{"the ack in a transaction of the last record of a key lets the next ones go to another owner", txAckFreesKey},
	}
}

// stepSentences are about acks of steps of joins.
func stepSentences() []sentence {
	return []sentence{
		{"a step of a join that was acked in a transaction counts after the commit, and not before", txAckCountsStep},
		{"an open transaction with the ack of a step stalls no ack of another step of the join", txAckStallsNoStep},
		{"a join counts a step that was acked in a transaction also where AckedInTx was never called", txAckCountsWithoutHint},
		{"a message that becomes a step after one of its groups has acked it in a transaction waits for its other groups", txAttachAfterAck},
		{"calls about joins in a transaction that has ended are ErrInvalidTx, and nothing is written", endedJoin},
	}
}

// acker returns the store as a storekit.TxAcker.
func (e *env) acker() storekit.TxAcker {
	e.T.Helper()
	found, ok := outmill.As[storekit.TxAcker](e.Store)
	require.True(e.T, ok, "the store is no storekit.TxAcker")
	return found
}

// hold prepares the records for an ack in a transaction.
func (e *env) hold(records ...*outmill.Record) {
	e.T.Helper()
	held, err := e.acker().HoldForTx(e.Ctx, leaseOf, suite.Leases(records))
	require.NoError(e.T, err, "HoldForTx")
	require.ElementsMatch(e.T, suite.Leases(records), held, "held")
}

func (e *env) ackIn(ctx context.Context, records ...*outmill.Record) error {
	return e.acker().AckInTx(ctx, worker, suite.Leases(records))
}

func (e *env) ackedIn(records ...*outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.acker().AckedInTx(e.Ctx, records), "AckedInTx")
}

func txAckCommits(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	other := e.on(e.Reopen())
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec("mails", "m2")))
	require.NoError(e.T, e.ackIn(ctx, r))
	require.Equal(e.T, outmill.StatusLeased, other.Get(r).Status, "before the commit")
	commit()
	e.ackedIn(r)
	other.RequireProcessed(r)
	require.Equal(e.T, []string{"m2"}, suite.Names(e.ClaimAll()))
}

func txHoldAsItIs(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	held, err := e.acker().HoldForTx(e.Ctx, 0, suite.Leases([]*outmill.Record{r}))
	require.NoError(e.T, err, "HoldForTx")
	require.Equal(e.T, suite.Leases([]*outmill.Record{r}), held)
	require.WithinDuration(e.T, r.LeaseUntil, e.Get(r).LeaseUntil, time.Millisecond)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, r))
	commit()
	e.ackedIn(r)
	e.RequireProcessed(r)
}

func txAckRollsBack(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec("mails", "never")))
	require.NoError(e.T, e.ackIn(ctx, r))
	rollback()
	require.Empty(e.T, e.ClaimAll(), "it is still leased")
	extended, err := e.Store.Extend(e.Ctx, leaseOf, suite.Leases([]*outmill.Record{r}))
	require.NoError(e.T, err)
	require.Equal(e.T, []outmill.Lease{r.Lease()}, extended)
	now := e.Get(r)
	require.Equal(e.T, outmill.StatusLeased, now.Status)
	require.Zero(e.T, now.Attempts)
	require.Zero(e.T, now.Expiries)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, r), "the same lease can be acked by the next transaction")
	commit()
	e.RequireProcessed(r)
}

func txAckReaped(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	e.Elapse(leaseOf + time.Second)
	require.Equal(e.T, 1, e.Reap(10))
	e.requireLost(r)
	e.RequireStatus(outmill.StatusPending, r)
}

// requireLost acks in a transaction of its own, which it then rolls back.
func (e *env) requireLost(records ...*outmill.Record) {
	e.T.Helper()
	ctx, _, rollback := e.Begin()
	require.ErrorIs(e.T, e.ackIn(ctx, records...), storekit.ErrLeaseLost)
	rollback()
}

func txAckTakenOver(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	e.Elapse(leaseOf + time.Second)
	second := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.requireLost(r)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, second))
	commit()
	e.RequireProcessed(second)
}

func txAckSettled(e *env) {
	e.Filled(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"), suite.Rec(orders, "m3"), suite.Rec(orders, "m4"))
	got := e.ClaimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"], got["m3"], got["m4"])
	e.Ack(got["m1"])
	e.Abandon(0, got["m2"])
	e.Fail(got["m3"])
	require.Equal(e.T, 1, e.Delete(got["m4"]))
	for _, name := range []string{"m1", "m2", "m3", "m4"} {
		e.requireLost(got[name])
	}
	unknown := *got["m4"]
	unknown.ID = outmill.NewWorkItemID()
	e.requireLost(&unknown)
}

func txAckOneLost(e *env) {
	e.Filled(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"))
	got := e.ClaimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"])
	e.Release(got["m1"])
	e.requireLost(got["m2"], got["m1"])
	e.RequireStatus(outmill.StatusLeased, got["m2"])
}

func txAckAfterEnd(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	e.Elapse(leaseOf + time.Second)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, r))
	commit()
	e.RequireProcessed(r)
}

func txAckWithoutTx(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.ErrorIs(e.T, e.ackIn(e.Ctx, r), outmill.ErrNoTx)
	require.ErrorIs(e.T, e.ackIn(suite.Foreign(e.Ctx), r), outmill.ErrForeignTx)
}

func txAckBadWorker(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	ctx, _, _ := e.Begin()
	for _, bad := range []string{"\x00", strings.Repeat("x", outmill.MaxTextLength+1)} {
		require.ErrorIs(e.T, e.acker().AckInTx(ctx, bad, suite.Leases([]*outmill.Record{r})), outmill.ErrInvalidRecord)
	}
	require.NoError(e.T, e.acker().AckInTx(ctx, worker, nil))
	e.RequireStatus(outmill.StatusLeased, r)
}

func txAckKeepsWorker(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, r))
	commit()
	e.RequireProcessed(r)
	if e.Options.Retain > 0 {
		now := e.Get(r)
		require.Equal(e.T, worker, now.ProcessedBy)
		e.RequireAbout(e.Now(), now.ProcessedAt, "processed at")
	}
}

func txHoldExtends(e *env) {
	e.Filled(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"))
	got := e.ClaimNamed(outmill.NewOwnerToken(), func(r *outmill.ClaimRequest) { r.Lease = time.Minute })
	e.Release(got["m1"])
	held, err := e.acker().HoldForTx(e.Ctx, time.Hour, suite.Leases([]*outmill.Record{got["m1"], got["m2"]}))
	require.NoError(e.T, err)
	require.Equal(e.T, []outmill.Lease{got["m2"].Lease()}, held)
	e.Elapse(50 * time.Minute)
	require.Zero(e.T, e.Reap(10))
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll()))
	e.Elapse(11 * time.Minute)
	require.Equal(e.T, []string{"m1", "m2"}, sortedNames(e.ClaimAll()))
}

func txHeldComesAgain(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("k")))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	e.hold(r)
	e.Abandon(0, r)
	again := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	require.Equal(e.T, 1, again.Attempts)
	require.Equal(e.T, r.Payload, again.Payload)
	e.hold(again)
	e.Release(again)
	require.Equal(e.T, 1, e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey).Attempts)
}

func txAcksInParallel(e *env) {
	e.Filled(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"), suite.Rec(orders, "m3"))
	got := e.ClaimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"], got["m3"])
	first, commitFirst, _ := e.Begin()
	require.NoError(e.T, e.ackIn(first, got["m1"]))
	e.promptly("an ack in a second transaction", func(e *env) {
		second, commitSecond, _ := e.Begin()
		require.NoError(e.T, e.ackIn(second, got["m2"]))
		commitSecond()
		e.ackedIn(got["m2"])
		e.Ack(got["m3"])
	})
	e.RequireStatus(outmill.StatusLeased, got["m1"])
	commitFirst()
	e.ackedIn(got["m1"])
	for _, r := range got {
		e.RequireProcessed(r)
	}
}

func txAckIsSkipped(e *env) {
	e.Filled(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"), suite.Rec(orders, "m3"))
	got := e.ClaimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"])
	e.Elapse(leaseOf + time.Second)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, got["m1"]))
	e.promptly("reapers and claims beside an ack in a transaction", func(e *env) {
		require.LessOrEqual(e.T, e.Reap(1), 1)
		require.Equal(e.T, []string{"m2", "m3"}, sortedNames(e.ClaimAll()))
		require.Zero(e.T, e.Reap(10))
		require.Empty(e.T, e.ClaimAll(suite.ByKey))
		e.Append(suite.Rec(orders, "m4"))
		require.Equal(e.T, []string{"m4"}, suite.Names(e.ClaimAll()))
	})
	commit()
	e.ackedIn(got["m1"])
	e.RequireProcessed(got["m1"])
	e.Elapse(leaseOf + time.Second)
	require.Equal(e.T, 3, e.Reap(10))
}

func txAckHoldsKey(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	e.hold(r)
	e.Elapse(leaseOf + time.Second)
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, r))
	e.promptly("ordered claims beside an ack in a transaction", func(e *env) {
		require.Empty(e.T, e.ClaimAll(suite.ByKey))
		e.Append(suite.Rec(orders, "x1", suite.WithKey("x")))
		require.Equal(e.T, []string{"x1"}, suite.Names(e.ClaimAll(suite.ByKey)))
	})
	rollback()
	e.Elapse(leaseOf + time.Second)
	require.Equal(e.T, []string{"m1", "m2", "x1"}, sortedNames(e.ClaimAll(suite.ByKey)))
}

func txAckFreesKey(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	e.hold(r)
	require.Empty(e.T, e.ClaimAll(suite.ByKey), "the key is held")
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, r))
	commit()
	e.ackedIn(r)
	require.Equal(e.T, []string{"m2", "m3"}, suite.Names(e.ClaimAll(suite.ByKey)))
}

func sortedNames(records []*outmill.Record) []string {
	list := suite.Names(records)
	slices.Sort(list)
	return list
}

func txAckCountsStep(e *env) {
	id := e.steps("m1", "m2")
	got := e.ClaimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"])
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, got["m1"]))
	rollback()
	e.requireCounts(id, 0, 0)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, got["m1"]))
	commit()
	e.ackedIn(got["m1"])
	e.requireCounts(id, 1, 0)
	e.Ack(got["m2"])
	e.requireCounts(id, 2, 0)
}

func txAckStallsNoStep(e *env) {
	id := e.steps("m1", "m2", "m3")
	got := e.ClaimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"], got["m3"])
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, got["m1"]))
	e.promptly("the settling of other steps", func(e *env) {
		e.Ack(got["m2"])
		e.requireCounts(id, 1, 0)
		e.Fail(got["m3"])
		e.requireCounts(id, 1, 1)
	})
	commit()
	e.ackedIn(got["m1"])
	e.requireCounts(id, 2, 1)
}

func txAckCountsWithoutHint(e *env) {
	id := e.steps("m1")
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, r))
	commit()
	result, err := e.joins().FinishJoin(e.Ctx, id, storekit.FinishRequest{})
	require.NoError(e.T, err)
	require.True(e.T, result.Finished)
	require.Equal(e.T, storekit.JoinCompleted, result.Join.Status)
	require.Equal(e.T, 1, result.Join.CompletedSteps)
}

func txAttachAfterAck(e *env) {
	if e.Options.Retain == 0 {
		return // AttachStep needs a store that retains.
	}
	e.Register("others", orders)
	first := e.steps("m1")
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.ackIn(ctx, r))
	commit()
	second := &storekit.Join{ExpectedSteps: 1}
	require.NoError(e.T, e.joins().StartJoin(e.Ctx, second), "StartJoin")
	other := e.ClaimOne(outmill.NewOwnerToken(), "m1", func(req *outmill.ClaimRequest) { req.Group = "others" })
	require.NoError(e.T, e.joins().AttachStep(e.Ctx, second.ID, other.ID), "AttachStep")
	e.ackedIn(r)
	e.requireCounts(first, 0, 0)
	e.requireCounts(second.ID, 0, 0)
	e.Ack(other)
	e.requireCounts(first, 1, 0)
	e.requireCounts(second.ID, 1, 0)
}
