package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func settleSentences() []sentence {
	list := []sentence{
		{"OBX-032 an acked record never comes again", ackedNeverComes},
		{"OBX-040 an abandoned record comes again after its delay", abandonedComes},
		{"an abandoned record without a delay comes again at once", abandonedComesAtOnce},
		{"OBX-048 a failed record never comes again", deadIsNotClaimed},
		{"a released record comes again at once", releasedComes},
		{"a snoozed record comes again after its delay", snoozedComes},
		{"attempts add up over many abandons and over nothing else", attemptsAddUp},
		{"the last error is that of the last abandon or fail", lastErrorIsTheLast},
		{"any text is taken for an error, cleaned, and the record is settled", anyErrorText},
		{"Extend returns the leases that still stand and no others", extendReturns},
		{"of two leases of one record in one call Extend returns the valid one", extendTwoLeases},
		{"Extend sets the end to now plus the lease, sooner too", extendShortens},
		{"an extended lease keeps others away until its new end", extendedHolds},
		{"Extend by a lease that is not above 0 is refused", refuseExtend},
		{"a negative delay of Abandon or Snooze is none", negativeDelay},
		{"the claim number of a record never goes back", claimsNeverGoBack},
		{"OBX-029 a processed record keeps the name of the worker that acked it, up to 255 UTF-16 units", processedByIsTheWorker},
		{"Ack by a worker whose name is too long, or no text, is refused and settles nothing", refuseWorkerName},
	}
	for _, s := range settlements() {
		list = append(list, s.sentences()...)
	}
	return list
}

func (s settlement) sentences() []sentence {
	return []sentence{
		{s.does + s.name + " acts on a lease that stands", s.standing},
		{s.name + " acts on a lease whose time is over, until it is reaped or claimed again", s.late},
		{s.passes + s.name + " passes over the lease of another owner", s.foreign},
		{s.name + " passes over an older claim of the same owner", s.older},
		{s.name + " passes over a lease that another owner has claimed since", s.takenOver},
		{s.name + " passes over a lease that was reaped", s.reaped},
		{s.passes + s.name + " passes over ids that do not exist", s.unknown},
		{s.name + " passes over what is settled already", s.settled},
		{s.name + " of nothing does nothing", s.nothing},
		{s.name + " acts on what stands of a mixed batch and passes over the rest", s.mixed},
		{s.name + " acts once on a lease that is given twice", s.twice},
		{s.name + " takes thousands of leases in one call", s.thousands},
	}
}

func processedByIsTheWorker(e *env) {
	for _, name := range []string{"", "host-1:4711", "it's \"quoted\"", strings.Repeat("日", 255), strings.Repeat("😀", 127) + "x"} {
		e.filled(rec(orders, "m1"))
		r := e.claimOne(outmill.NewOwnerToken(), "m1")
		require.NoError(e.t, e.store.Ack(e.ctx, name, []outmill.Lease{r.Lease()}))
		if e.options.Retain == 0 {
			e.requireGone(r)
			continue
		}
		require.Equal(e.t, name, e.get(r).ProcessedBy, "processed by")
		found := e.list(outmill.ListQuery{Status: outmill.StatusProcessed})
		require.Len(e.t, found, 1)
		require.Equal(e.t, name, found[0].ProcessedBy, "processed by, listed")
		e.delete(r)
	}
}

func refuseWorkerName(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	for _, bad := range []string{strings.Repeat("x", 256), strings.Repeat("😀", 128), "a\x00", "\xff"} {
		e.unchanged(r, func() {
			require.ErrorIs(e.t, e.store.Ack(e.ctx, bad, []outmill.Lease{r.Lease()}), outmill.ErrInvalidRecord)
		})
	}
}

// unchanged runs f and checks that the record is as it was.
func (e *env) unchanged(r *outmill.Record, f func()) {
	e.t.Helper()
	before := e.get(r)
	f()
	require.Equal(e.t, before, e.get(r), "the record was changed")
}

func (s settlement) standing(e *env) {
	e.filled(rec(orders, "m1"), rec(orders, "beside"))
	found := e.claimNamed(outmill.NewOwnerToken())
	r := found["m1"]
	e.unchanged(found["beside"], func() {
		require.NoError(e.t, s.apply(e, r.Lease()))
		s.requireDone(e, r)
	})
}

func (s settlement) late(e *env) {
	e.filled(rec(orders, "m1"))
	e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(leaseOf + time.Minute)
	e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(leaseOf + time.Minute)
	r := e.list(outmill.ListQuery{})[0]
	require.NoError(e.t, s.apply(e, r.Lease()))
	s.requireDone(e, r)
}

func (s settlement) foreign(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.unchanged(r, func() {
		for _, owner := range []outmill.OwnerToken{outmill.NewOwnerToken(), {}} {
			require.NoError(e.t, s.apply(e, outmill.Lease{ID: r.ID, Owner: owner, Claim: r.Claims}))
		}
	})
}

func (s settlement) older(e *env) {
	e.filled(rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	first := e.claimOne(owner, "m1")
	e.release(first)
	second := e.claimOne(owner, "m1")
	e.unchanged(second, func() {
		for _, claim := range []int{first.Claims, 0, -1, second.Claims + 1} {
			require.NoError(e.t, s.apply(e, outmill.Lease{ID: first.ID, Owner: owner, Claim: claim}))
		}
	})
}

func (s settlement) takenOver(e *env) {
	e.filled(rec(orders, "m1"))
	first := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(leaseOf + time.Minute)
	second := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.unchanged(second, func() { require.NoError(e.t, s.apply(e, first.Lease())) })
}

func (s settlement) reaped(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(leaseOf + time.Minute)
	require.Equal(e.t, 1, e.reap(10))
	e.unchanged(r, func() { require.NoError(e.t, s.apply(e, r.Lease())) })
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func (s settlement) unknown(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.unchanged(r, func() {
		require.NoError(e.t, s.apply(e,
			outmill.Lease{},
			outmill.Lease{Owner: r.Owner, Claim: r.Claims},
			outmill.Lease{ID: outmill.NewWorkItemID(), Owner: r.Owner, Claim: r.Claims}))
	})
}

func (s settlement) settled(e *env) {
	e.filled(recs(orders, plain, "acked", "abandoned", "failed", "released", "snoozed")...)
	all := e.claimAll()
	found := byName(all)
	e.ack(found["acked"])
	e.abandon(time.Minute, found["abandoned"])
	e.fail(found["failed"])
	e.release(found["released"])
	e.snooze(time.Minute, found["snoozed"])
	before := e.list(outmill.ListQuery{})
	require.NoError(e.t, s.apply(e, leases(all)...))
	require.Equal(e.t, before, e.list(outmill.ListQuery{}))
}

func (s settlement) nothing(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.unchanged(r, func() { require.NoError(e.t, s.apply(e)) })
}

func (s settlement) mixed(e *env) {
	e.register("second", "second's")
	e.append(rec("second's", "of another group"))
	e.filled(recs(orders, plain, "a", "foreign", "b", "stale", "pending")...)
	owner := outmill.NewOwnerToken()
	second := e.claimOne(owner, "of another group", ofGroup("second"))
	found := e.claimNamed(owner)
	a, b, stale, pending := found["a"], found["b"], found["stale"], found["pending"]
	e.release(found["foreign"])
	foreign := e.claimOne(outmill.NewOwnerToken(), "foreign")
	e.release(pending)
	e.unchanged(foreign, func() {
		e.unchanged(stale, func() {
			require.NoError(e.t, s.apply(e,
				outmill.Lease{ID: foreign.ID, Owner: owner, Claim: foreign.Claims},
				a.Lease(),
				outmill.Lease{ID: outmill.NewWorkItemID(), Owner: owner, Claim: 1},
				outmill.Lease{ID: stale.ID, Owner: owner, Claim: stale.Claims + 1},
				pending.Lease(),
				second.Lease(),
				b.Lease()))
		})
	})
	s.requireDone(e, a)
	s.requireDone(e, b)
	s.requireDone(e, second)
	e.requireStatus(outmill.StatusPending, pending)
}

func (s settlement) twice(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.NoError(e.t, s.apply(e, r.Lease(), r.Lease()))
	s.requireDone(e, r)
}

func (s settlement) thousands(e *env) {
	n := large(2500)
	e.filled(recs(orders, plain, numbered(n)...)...)
	owner := outmill.NewOwnerToken()
	found := e.claimN(owner, n)
	require.NoError(e.t, s.apply(e, leases(found)...))
	s.requireDone(e, found[0])
	s.requireDone(e, found[n-1])
	if s.name != "Extend" {
		require.Empty(e.t, e.list(outmill.ListQuery{Status: outmill.StatusLeased}))
	}
}

func ackedNeverComes(e *env) {
	e.filled(keyed("k", "acked", "next")...)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "acked", byKey))
	e.requireNames([]string{"next"}, e.claimAll(byKey))
	e.elapse(2 * leaseOf)
	e.requireNames([]string{"next"}, e.claimAll())
}

func (e *env) requireNames(want []string, got []*outmill.Record) {
	e.t.Helper()
	require.Equal(e.t, want, names(got))
}

func abandonedComes(e *env) {
	e.filled(rec(orders, "m1"))
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1"))
	require.Empty(e.t, e.claimAll())
	e.elapse(59 * time.Minute)
	require.Empty(e.t, e.claimAll())
	e.elapse(2 * time.Minute)
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.Equal(e.t, 1, r.Attempts)
	require.Equal(e.t, "boom", r.LastError)
}

func abandonedComesAtOnce(e *env) {
	e.filled(rec(orders, "m1"))
	e.abandon(0, e.claimOne(outmill.NewOwnerToken(), "m1"))
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func releasedComes(e *env) {
	e.filled(rec(orders, "m1"))
	e.release(e.claimOne(outmill.NewOwnerToken(), "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.Equal(e.t, 2, r.Claims)
	require.Zero(e.t, r.Attempts)
}

func snoozedComes(e *env) {
	e.filled(rec(orders, "m1"))
	e.snooze(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1"))
	require.Empty(e.t, e.claimAll())
	e.elapse(59 * time.Minute)
	require.Empty(e.t, e.claimAll())
	e.elapse(2 * time.Minute)
	require.Zero(e.t, e.claimOne(outmill.NewOwnerToken(), "m1").Attempts)
}

func attemptsAddUp(e *env) {
	e.filled(rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	claims := 0
	claim := func() *outmill.Record {
		claims++
		return e.claimOne(owner, "m1")
	}
	for n := range 4 {
		e.abandon(0, claim())
		e.release(claim())
		e.snooze(0, claim())
		claim()
		e.elapse(leaseOf + time.Minute)
		e.reap(10)
		r := claim()
		require.Equal(e.t, n+1, r.Attempts)
		require.Equal(e.t, claims, r.Claims)
		e.snooze(0, r)
	}
}

func lastErrorIsTheLast(e *env) {
	e.filled(rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	r := e.claimOne(owner, "m1")
	require.NoError(e.t, e.store.Abandon(e.ctx, delayedBy(0, "first", leases([]*outmill.Record{r}))))
	r = e.claimOne(owner, "m1")
	require.Equal(e.t, "first", r.LastError)
	e.release(r)
	require.Equal(e.t, "first", e.get(r).LastError, "a release says nothing")
	r = e.claimOne(owner, "m1")
	require.NoError(e.t, e.store.Fail(e.ctx, failures(false, "second", leases([]*outmill.Record{r}))))
	require.Equal(e.t, "second", e.get(r).LastError)
}

// anyErrorText: the text comes from users' handlers, and a record must not
// stay leased because of it.
func anyErrorText(e *env) {
	texts := []string{
		"", "boom: it's \"bad\" \\ % '; DROP TABLE x; --", "boom 日本 😀\n\tsecond line",
		"boom\x00with a NUL", "boom\xffnot UTF-8\xed\xa0\x80", "boom " + strings.Repeat("long ", 200_000),
	}
	for i, text := range texts {
		for _, fail := range []bool{true, false} {
			name := fmt.Sprintf("text %d, fail %t", i, fail)
			e.register(group)
			e.append(rec(orders, name))
			r := e.claimOne(outmill.NewOwnerToken(), name)
			want := outmill.StatusPending
			if fail {
				want = outmill.StatusDead
				require.NoError(e.t, e.store.Fail(e.ctx, failures(false, text, leases([]*outmill.Record{r}))), name)
			} else {
				require.NoError(e.t, e.store.Abandon(e.ctx, delayedBy(time.Hour, text, leases([]*outmill.Record{r}))), name)
			}
			got := e.get(r)
			require.Equal(e.t, want, got.Status, name)
			require.Equal(e.t, storekit.CleanError(text), got.LastError, name)
		}
	}
}

func extendReturns(e *env) {
	e.filled(recs(orders, plain, "a", "b", "late", "acked", "foreign")...)
	owner := outmill.NewOwnerToken()
	all := e.claimOn(owner)
	found := byName(all)
	e.ack(found["acked"])
	e.release(found["foreign"])
	foreign := e.claimOne(outmill.NewOwnerToken(), "foreign")
	e.elapse(leaseOf + time.Minute)
	asked := append(leases(all),
		outmill.Lease{ID: foreign.ID, Owner: owner, Claim: foreign.Claims},
		outmill.Lease{ID: outmill.NewWorkItemID(), Owner: owner, Claim: 1})
	standing, err := e.store.Extend(e.ctx, leaseOf, asked)
	require.NoError(e.t, err)
	require.ElementsMatch(e.t, leases([]*outmill.Record{found["a"], found["b"], found["late"]}), standing)
	none, err := e.store.Extend(e.ctx, leaseOf, nil)
	require.NoError(e.t, err)
	require.Empty(e.t, none)
}

func extendShortens(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	_, err := e.store.Extend(e.ctx, leaseOf/10, []outmill.Lease{r.Lease()})
	require.NoError(e.t, err)
	e.requireAbout(e.now().Add(leaseOf/10), e.get(r).LeaseUntil, "lease until")
	e.elapse(leaseOf / 2)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func extendedHolds(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	for range 5 {
		e.elapse(leaseOf - time.Minute)
		standing, err := e.store.Extend(e.ctx, leaseOf, []outmill.Lease{r.Lease()})
		require.NoError(e.t, err)
		require.Equal(e.t, []outmill.Lease{r.Lease()}, standing)
		require.Empty(e.t, e.claimAll())
		require.Zero(e.t, e.reap(10))
	}
	e.ack(r)
	e.requireProcessed(r)
}

func extendTwoLeases(e *env) {
	e.filled(rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	old := e.claimOne(owner, "m1").Lease()
	e.elapse(2 * leaseOf)
	valid := e.claimOne(owner, "m1").Lease()
	for _, asked := range [][]outmill.Lease{{old, valid}, {valid, old}} {
		standing, err := e.store.Extend(e.ctx, leaseOf, asked)
		require.NoError(e.t, err)
		require.Equal(e.t, []outmill.Lease{valid}, standing)
	}
}

func refuseExtend(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.unchanged(r, func() {
		for _, lease := range []time.Duration{0, -time.Second} {
			_, err := e.store.Extend(e.ctx, lease, []outmill.Lease{r.Lease()})
			e.requireRefusal(err, "lease %s", lease)
		}
	})
}

func negativeDelay(e *env) {
	e.filled(rec(orders, "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.NoError(e.t, e.store.Abandon(e.ctx, delayedBy(-time.Hour, "boom", leases([]*outmill.Record{r}))))
	e.requireAbout(e.now(), e.get(r).NextAttemptAt, "next attempt at, after an abandon")
	r = e.claimOne(outmill.NewOwnerToken(), "m1")
	require.NoError(e.t, e.store.Snooze(e.ctx, delayedBy(-time.Hour, "", leases([]*outmill.Record{r}))))
	e.requireAbout(e.now(), e.get(r).NextAttemptAt, "next attempt at, after a snooze")
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

// claimsNeverGoBack: else a late ack of an old claim could pass for one of a
// new claim with the same number.
func claimsNeverGoBack(e *env) {
	e.filled(rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	first := e.claimOne(owner, "m1")
	e.fail(first)
	e.requeue(first)
	second := e.claimOne(owner, "m1")
	require.Equal(e.t, 2, second.Claims)
	e.unchanged(second, func() { e.ack(first) })
	e.elapse(leaseOf + time.Minute)
	e.reap(10)
	require.Equal(e.t, 3, e.claimOne(owner, "m1").Claims)
}
