package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
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
		{"an ack in a transaction keeps the worker's name where the store retains", txAckKeepsWorker},
		{"HoldForTx returns the valid leases, and they end no earlier than it says", txHoldExtends},
		{"a record that was held and is not acked comes again with its attempts", txHeldComesAgain},
		{"two transactions ack two records of one claim at the same time", txAcksInParallel},
		{"no claim or reaper waits for an ack in an open transaction, or hands its record out", txAckIsSkipped},
		{"the later records of a key wait until the transaction with the ack has ended", txAckHoldsKey},
		{"the ack in a transaction of the last record of a key lets the next ones go to another owner", txAckFreesKey},
		{"a step of a join that was acked in a transaction counts after the commit, and not before", txAckCountsStep},
		{"an open transaction with the ack of a step stalls no ack of another step of the join", txAckStallsNoStep},
		{"a join counts a step that was acked in a transaction also where AckedInTx was never called", txAckCountsWithoutHint},
	}
}

// acker is the store as a storekit.TxAcker.
func (e *env) acker() storekit.TxAcker {
	e.t.Helper()
	found, ok := outmill.As[storekit.TxAcker](e.store)
	require.True(e.t, ok, "the store is no storekit.TxAcker")
	return found
}

// hold makes the records ready for an ack in a transaction.
func (e *env) hold(records ...*outmill.Record) {
	e.t.Helper()
	held, err := e.acker().HoldForTx(e.ctx, leaseOf, leases(records))
	require.NoError(e.t, err, "HoldForTx")
	require.ElementsMatch(e.t, leases(records), held, "held")
}

func (e *env) ackIn(ctx context.Context, records ...*outmill.Record) error {
	return e.acker().AckInTx(ctx, worker, leases(records))
}

func (e *env) ackedIn(records ...*outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.acker().AckedInTx(e.ctx, records), "AckedInTx")
}

// promptly runs fn, which must not wait for an open transaction.
func (e *env) promptly(what string, fn func(e *env)) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, soon)
	defer cancel()
	bounded := *e
	bounded.ctx = ctx
	fn(&bounded)
	require.NoError(e.t, ctx.Err(), what)
}

func txAckCommits(e *env) {
	e.filled(rec(orders, "m1"))
	other := e.on(e.reopen())
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec("mails", "m2")))
	require.NoError(e.t, e.ackIn(ctx, r))
	require.Equal(e.t, outmill.StatusLeased, other.get(r).Status, "before the commit")
	commit()
	e.ackedIn(r)
	other.requireProcessed(r)
	require.Equal(e.t, []string{"m2"}, names(e.claimAll()))
}

func txAckRollsBack(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, _, rollback := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec("mails", "never")))
	require.NoError(e.t, e.ackIn(ctx, r))
	rollback()
	require.Empty(e.t, e.claimAll(), "it is still leased")
	extended, err := e.store.Extend(e.ctx, leaseOf, leases([]*outmill.Record{r}))
	require.NoError(e.t, err)
	require.Equal(e.t, []outmill.Lease{r.Lease()}, extended)
	now := e.get(r)
	require.Equal(e.t, outmill.StatusLeased, now.Status)
	require.Zero(e.t, now.Attempts)
	require.Zero(e.t, now.Expiries)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, r), "the same lease can be acked by the next transaction")
	commit()
	e.requireProcessed(r)
}

func txAckReaped(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	e.elapse(leaseOf + time.Second)
	require.Equal(e.t, 1, e.reap(10))
	e.requireLost(r)
	e.requireStatus(outmill.StatusPending, r)
}

// requireLost acks in a transaction of its own, which it then rolls back.
func (e *env) requireLost(records ...*outmill.Record) {
	e.t.Helper()
	ctx, _, rollback := e.begin()
	require.ErrorIs(e.t, e.ackIn(ctx, records...), storekit.ErrLeaseLost)
	rollback()
}

func txAckTakenOver(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	e.elapse(leaseOf + time.Second)
	second := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.requireLost(r)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, second))
	commit()
	e.requireProcessed(second)
}

func txAckSettled(e *env) {
	e.filled(rec(orders, "m1"), rec(orders, "m2"), rec(orders, "m3"), rec(orders, "m4"))
	got := e.claimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"], got["m3"], got["m4"])
	e.ack(got["m1"])
	e.abandon(0, got["m2"])
	e.fail(got["m3"])
	require.Equal(e.t, 1, e.delete(got["m4"]))
	for _, name := range []string{"m1", "m2", "m3", "m4"} {
		e.requireLost(got[name])
	}
	unknown := *got["m4"]
	unknown.ID = outmill.NewWorkItemID()
	e.requireLost(&unknown)
}

func txAckOneLost(e *env) {
	e.filled(rec(orders, "m1"), rec(orders, "m2"))
	got := e.claimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"])
	e.release(got["m1"])
	e.requireLost(got["m2"], got["m1"])
	e.requireStatus(outmill.StatusLeased, got["m2"])
}

func txAckAfterEnd(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	e.elapse(leaseOf + time.Second)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, r))
	commit()
	e.requireProcessed(r)
}

func txAckWithoutTx(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.ErrorIs(e.t, e.ackIn(e.ctx, r), outmill.ErrNoTx)
	require.ErrorIs(e.t, e.ackIn(foreign(e.ctx), r), outmill.ErrForeignTx)
	ctx, _, _ := e.begin()
	require.ErrorIs(e.t, e.acker().AckInTx(ctx, string(make([]byte, 300)), leases([]*outmill.Record{r})), outmill.ErrInvalidRecord)
	require.NoError(e.t, e.acker().AckInTx(ctx, worker, nil))
	e.requireStatus(outmill.StatusLeased, r)
}

func txAckKeepsWorker(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, r))
	commit()
	e.requireProcessed(r)
	if e.options.Retain > 0 {
		now := e.get(r)
		require.Equal(e.t, worker, now.ProcessedBy)
		e.requireAbout(e.now(), now.ProcessedAt, "processed at")
	}
}

func txHoldExtends(e *env) {
	e.filled(rec(orders, "m1"), rec(orders, "m2"))
	got := e.claimNamed(outmill.NewOwnerToken(), func(r *outmill.ClaimRequest) { r.Lease = time.Minute })
	e.release(got["m1"])
	held, err := e.acker().HoldForTx(e.ctx, time.Hour, leases([]*outmill.Record{got["m1"], got["m2"]}))
	require.NoError(e.t, err)
	require.Equal(e.t, []outmill.Lease{got["m2"].Lease()}, held)
	e.elapse(50 * time.Minute)
	require.Zero(e.t, e.reap(10))
	require.Equal(e.t, []string{"m1"}, names(e.claimAll()))
	e.elapse(11 * time.Minute)
	require.Equal(e.t, []string{"m1", "m2"}, sortedNames(e.claimAll()))
}

func txHeldComesAgain(e *env) {
	e.filled(rec(orders, "m1", withKey("k")))
	r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	e.hold(r)
	e.abandon(0, r)
	again := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	require.Equal(e.t, 1, again.Attempts)
	require.Equal(e.t, r.Payload, again.Payload)
	e.hold(again)
	e.release(again)
	require.Equal(e.t, 1, e.claimOne(outmill.NewOwnerToken(), "m1", byKey).Attempts)
}

func txAcksInParallel(e *env) {
	e.filled(rec(orders, "m1"), rec(orders, "m2"), rec(orders, "m3"))
	got := e.claimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"], got["m3"])
	first, commitFirst, _ := e.begin()
	require.NoError(e.t, e.ackIn(first, got["m1"]))
	e.promptly("an ack in a second transaction", func(e *env) {
		second, commitSecond, _ := e.begin()
		require.NoError(e.t, e.ackIn(second, got["m2"]))
		commitSecond()
		e.ackedIn(got["m2"])
		e.ack(got["m3"])
	})
	e.requireStatus(outmill.StatusLeased, got["m1"])
	commitFirst()
	e.ackedIn(got["m1"])
	for _, r := range got {
		e.requireProcessed(r)
	}
}

func txAckIsSkipped(e *env) {
	e.filled(rec(orders, "m1"), rec(orders, "m2"), rec(orders, "m3"))
	got := e.claimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"])
	e.elapse(leaseOf + time.Second)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, got["m1"]))
	e.promptly("reapers and claims beside an ack in a transaction", func(e *env) {
		require.LessOrEqual(e.t, e.reap(1), 1)
		require.Equal(e.t, []string{"m2", "m3"}, sortedNames(e.claimAll()))
		require.Zero(e.t, e.reap(10))
		require.Empty(e.t, e.claimAll(byKey))
		e.append(rec(orders, "m4"))
		require.Equal(e.t, []string{"m4"}, names(e.claimAll()))
	})
	commit()
	e.ackedIn(got["m1"])
	e.requireProcessed(got["m1"])
	e.elapse(leaseOf + time.Second)
	require.Equal(e.t, 3, e.reap(10))
}

func txAckHoldsKey(e *env) {
	e.filled(keyed("k", "m1", "m2")...)
	r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	e.hold(r)
	e.elapse(leaseOf + time.Second)
	ctx, _, rollback := e.begin()
	require.NoError(e.t, e.ackIn(ctx, r))
	e.promptly("ordered claims beside an ack in a transaction", func(e *env) {
		require.Empty(e.t, e.claimAll(byKey))
		e.append(rec(orders, "x1", withKey("x")))
		require.Equal(e.t, []string{"x1"}, names(e.claimAll(byKey)))
	})
	rollback()
	e.elapse(leaseOf + time.Second)
	require.Equal(e.t, []string{"m1", "m2", "x1"}, sortedNames(e.claimAll(byKey)))
}

func txAckFreesKey(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	r := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	e.hold(r)
	require.Empty(e.t, e.claimAll(byKey), "the key is held")
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, r))
	commit()
	e.ackedIn(r)
	require.Equal(e.t, []string{"m2", "m3"}, names(e.claimAll(byKey)))
}

func sortedNames(records []*outmill.Record) []string {
	list := names(records)
	slices.Sort(list)
	return list
}

func txAckCountsStep(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1", "m2")
	got := e.claimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"])
	ctx, _, rollback := e.begin()
	require.NoError(e.t, e.ackIn(ctx, got["m1"]))
	rollback()
	e.requireCounts(id, 0, 0)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, got["m1"]))
	commit()
	e.ackedIn(got["m1"])
	e.requireCounts(id, 1, 0)
	e.ack(got["m2"])
	e.requireCounts(id, 2, 0)
}

func txAckStallsNoStep(e *env) {
	id := e.startJoin(3)
	e.members(id, "m1", "m2", "m3")
	got := e.claimNamed(outmill.NewOwnerToken())
	e.hold(got["m1"], got["m2"], got["m3"])
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, got["m1"]))
	e.promptly("the settling of other steps", func(e *env) {
		e.ack(got["m2"])
		e.requireCounts(id, 1, 0)
		e.fail(got["m3"])
		e.requireCounts(id, 1, 1)
	})
	commit()
	e.ackedIn(got["m1"])
	e.requireCounts(id, 2, 1)
}

func txAckCountsWithoutHint(e *env) {
	id := e.startJoin(1)
	e.members(id, "m1")
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.hold(r)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.ackIn(ctx, r))
	commit()
	result, err := e.joins().FinishJoin(e.ctx, id, storekit.FinishRequest{})
	require.NoError(e.t, err)
	require.True(e.t, result.Finished)
	require.Equal(e.t, storekit.JoinCompleted, result.Join.Status)
	require.Equal(e.t, 1, result.Join.CompletedSteps)
}
