package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

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
		{"OBX-041 OBX-043 any text is taken for an error, cleaned, and the record is settled", anyErrorText},
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
		{s.only + s.passes + s.name + " passes over the lease of another owner", s.foreign},
		{s.only + s.name + " passes over an older claim of the same owner", s.older},
		{s.only + s.name + " passes over a lease that another owner has claimed since", s.takenOver},
		{s.only + s.name + " passes over a lease that was reaped", s.reaped},
		{s.only + s.passes + s.name + " passes over ids that do not exist", s.unknown},
		{s.name + " passes over what is settled already", s.settled},
		{s.name + " of nothing does nothing", s.nothing},
		{s.name + " acts on what stands of a mixed batch and passes over the rest", s.mixed},
		{s.name + " acts once on a lease that is given twice", s.twice},
		{s.name + " takes thousands of leases in one call", s.thousands},
	}
}

func processedByIsTheWorker(e *env) {
	for _, name := range []string{"", "host-1:4711", "it's \"quoted\"", strings.Repeat("日", 255), strings.Repeat("😀", 127) + "x"} {
		e.Filled(suite.Rec(orders, "m1"))
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
		require.NoError(e.T, e.Store.Ack(e.Ctx, name, []outmill.Lease{r.Lease()}))
		if e.Options.Retain == 0 {
			e.RequireGone(r)
			continue
		}
		require.Equal(e.T, name, e.Get(r).ProcessedBy, "processed by")
		found := e.List(outmill.ListQuery{Status: outmill.StatusProcessed})
		require.Len(e.T, found, 1)
		require.Equal(e.T, name, found[0].ProcessedBy, "processed by, listed")
		e.Delete(r)
	}
}

func refuseWorkerName(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	for _, bad := range []string{strings.Repeat("x", 256), strings.Repeat("😀", 128), "a\x00", "\xff"} {
		e.Unchanged(r, func() {
			require.ErrorIs(e.T, e.Store.Ack(e.Ctx, bad, []outmill.Lease{r.Lease()}), outmill.ErrInvalidRecord)
		})
	}
}

func (s settlement) standing(e *env) {
	e.Filled(suite.Rec(orders, "m1"), suite.Rec(orders, "beside"))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	r := found["m1"]
	e.Unchanged(found["beside"], func() {
		require.NoError(e.T, s.apply(e, r.Lease()))
		s.requireDone(e, r)
	})
}

func (s settlement) late(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(leaseOf + time.Minute)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(leaseOf + time.Minute)
	r := e.List(outmill.ListQuery{})[0]
	require.NoError(e.T, s.apply(e, r.Lease()))
	s.requireDone(e, r)
}

func (s settlement) foreign(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Unchanged(r, func() {
		for _, owner := range []outmill.OwnerToken{outmill.NewOwnerToken(), {}} {
			require.NoError(e.T, s.apply(e, outmill.Lease{ID: r.ID, Owner: owner, Claim: r.Claims}))
		}
	})
}

func (s settlement) older(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	first := e.ClaimOne(owner, "m1")
	e.Release(first)
	second := e.ClaimOne(owner, "m1")
	e.Unchanged(second, func() {
		for _, claim := range []int{first.Claims, 0, -1, second.Claims + 1} {
			require.NoError(e.T, s.apply(e, outmill.Lease{ID: first.ID, Owner: owner, Claim: claim}))
		}
	})
}

func (s settlement) takenOver(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	first := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(leaseOf + time.Minute)
	second := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Unchanged(second, func() { require.NoError(e.T, s.apply(e, first.Lease())) })
}

func (s settlement) reaped(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(leaseOf + time.Minute)
	require.Equal(e.T, 1, e.Reap(10))
	e.Unchanged(r, func() { require.NoError(e.T, s.apply(e, r.Lease())) })
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func (s settlement) unknown(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Unchanged(r, func() {
		require.NoError(e.T, s.apply(e,
			outmill.Lease{},
			outmill.Lease{Owner: r.Owner, Claim: r.Claims},
			outmill.Lease{ID: outmill.NewWorkItemID(), Owner: r.Owner, Claim: r.Claims}))
	})
}

func (s settlement) settled(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "acked", "abandoned", "failed", "released", "snoozed")...)
	all := e.ClaimAll()
	found := suite.ByName(all)
	e.Ack(found["acked"])
	e.Abandon(time.Minute, found["abandoned"])
	e.Fail(found["failed"])
	e.Release(found["released"])
	e.Snooze(time.Minute, found["snoozed"])
	before := e.List(outmill.ListQuery{})
	require.NoError(e.T, s.apply(e, suite.Leases(all)...))
	require.Equal(e.T, before, e.List(outmill.ListQuery{}))
}

func (s settlement) nothing(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Unchanged(r, func() { require.NoError(e.T, s.apply(e)) })
}

func (s settlement) mixed(e *env) {
	e.Register("second", "second's")
	e.Append(suite.Rec("second's", "of another group"))
	e.Filled(suite.Recs(orders, suite.Plain, "a", "foreign", "b", "stale", "pending")...)
	owner := outmill.NewOwnerToken()
	second := e.ClaimOne(owner, "of another group", suite.OfGroup("second"))
	found := e.ClaimNamed(owner)
	a, b, stale, pending := found["a"], found["b"], found["stale"], found["pending"]
	e.Release(found["foreign"])
	foreign := e.ClaimOne(outmill.NewOwnerToken(), "foreign")
	e.Release(pending)
	e.Unchanged(foreign, func() {
		e.Unchanged(stale, func() {
			require.NoError(e.T, s.apply(e,
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
	e.RequireStatus(outmill.StatusPending, pending)
}

func (s settlement) twice(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.NoError(e.T, s.apply(e, r.Lease(), r.Lease()))
	s.requireDone(e, r)
}

func (s settlement) thousands(e *env) {
	n := suite.Large(2500)
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(n)...)...)
	owner := outmill.NewOwnerToken()
	found := e.ClaimN(owner, n)
	require.NoError(e.T, s.apply(e, suite.Leases(found)...))
	s.requireDone(e, found[0])
	s.requireDone(e, found[n-1])
	if s.name != "Extend" {
		require.Empty(e.T, e.List(outmill.ListQuery{Status: outmill.StatusLeased}))
	}
}

func ackedNeverComes(e *env) {
	e.Filled(suite.Keyed("k", "acked", "next")...)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "acked", suite.ByKey))
	e.RequireNames([]string{"next"}, e.ClaimAll(suite.ByKey))
	e.Elapse(2 * leaseOf)
	e.RequireNames([]string{"next"}, e.ClaimAll())
}

func abandonedComes(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(59 * time.Minute)
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(2 * time.Minute)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.Equal(e.T, 1, r.Attempts)
	require.Equal(e.T, "boom", r.LastError)
}

func abandonedComesAtOnce(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.Abandon(0, e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func releasedComes(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.Equal(e.T, 2, r.Claims)
	require.Zero(e.T, r.Attempts)
}

func snoozedComes(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.Snooze(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(59 * time.Minute)
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(2 * time.Minute)
	require.Zero(e.T, e.ClaimOne(outmill.NewOwnerToken(), "m1").Attempts)
}

func attemptsAddUp(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	claims := 0
	claim := func() *outmill.Record {
		claims++
		return e.ClaimOne(owner, "m1")
	}
	for n := range 4 {
		e.Abandon(0, claim())
		e.Release(claim())
		e.Snooze(0, claim())
		claim()
		e.Elapse(leaseOf + time.Minute)
		e.Reap(10)
		r := claim()
		require.Equal(e.T, n+1, r.Attempts)
		require.Equal(e.T, claims, r.Claims)
		e.Snooze(0, r)
	}
}

func lastErrorIsTheLast(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	r := e.ClaimOne(owner, "m1")
	require.NoError(e.T, e.Store.Abandon(e.Ctx, suite.DelayedBy(0, "first", suite.Leases([]*outmill.Record{r}))))
	r = e.ClaimOne(owner, "m1")
	require.Equal(e.T, "first", r.LastError)
	e.Release(r)
	require.Equal(e.T, "first", e.Get(r).LastError, "a release says nothing")
	r = e.ClaimOne(owner, "m1")
	require.NoError(e.T, e.Store.Fail(e.Ctx, suite.Failures(false, "second", suite.Leases([]*outmill.Record{r}))))
	require.Equal(e.T, "second", e.Get(r).LastError)
}

// anyErrorText requires that no text keeps a record leased, because the text comes from users'
// handlers.
func anyErrorText(e *env) {
	texts := []string{
		"", "boom: it's \"bad\" \\ % '; DROP TABLE x; --", "boom 日本 😀\n\tsecond line",
		"boom\x00with a NUL", "boom\xffnot UTF-8\xed\xa0\x80", "boom " + strings.Repeat("long ", 200_000),
	}
	for i, text := range texts {
		for _, fail := range []bool{true, false} {
			name := fmt.Sprintf("text %d, fail %t", i, fail)
			e.Register(group)
			e.Append(suite.Rec(orders, name))
			r := e.ClaimOne(outmill.NewOwnerToken(), name)
			want := outmill.StatusPending
			if fail {
				want = outmill.StatusDead
				require.NoError(e.T, e.Store.Fail(e.Ctx, suite.Failures(false, text, suite.Leases([]*outmill.Record{r}))), name)
			} else {
				require.NoError(e.T, e.Store.Abandon(e.Ctx, suite.DelayedBy(time.Hour, text, suite.Leases([]*outmill.Record{r}))), name)
			}
			got := e.Get(r)
			require.Equal(e.T, want, got.Status, name)
			require.Equal(e.T, storekit.CleanError(text), got.LastError, name)
			if len(text) > 4096 {
				require.Len(e.T, got.LastError, 4096, name)
			}
		}
	}
}

func extendReturns(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "a", "b", "late", "acked", "foreign")...)
	owner := outmill.NewOwnerToken()
	all := e.ClaimOn(owner)
	found := suite.ByName(all)
	e.Ack(found["acked"])
	e.Release(found["foreign"])
	foreign := e.ClaimOne(outmill.NewOwnerToken(), "foreign")
	e.Elapse(leaseOf + time.Minute)
	asked := append(suite.Leases(all),
		outmill.Lease{ID: foreign.ID, Owner: owner, Claim: foreign.Claims},
		outmill.Lease{ID: outmill.NewWorkItemID(), Owner: owner, Claim: 1})
	standing, err := e.Store.Extend(e.Ctx, leaseOf, asked)
	require.NoError(e.T, err)
	require.ElementsMatch(e.T, suite.Leases([]*outmill.Record{found["a"], found["b"], found["late"]}), standing)
	none, err := e.Store.Extend(e.Ctx, leaseOf, nil)
	require.NoError(e.T, err)
	require.Empty(e.T, none)
}

func extendShortens(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	_, err := e.Store.Extend(e.Ctx, leaseOf/10, []outmill.Lease{r.Lease()})
	require.NoError(e.T, err)
	e.RequireAbout(e.Now().Add(leaseOf/10), e.Get(r).LeaseUntil, "lease until")
	e.Elapse(leaseOf / 2)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func extendedHolds(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	for range 5 {
		e.Elapse(leaseOf - time.Minute)
		standing, err := e.Store.Extend(e.Ctx, leaseOf, []outmill.Lease{r.Lease()})
		require.NoError(e.T, err)
		require.Equal(e.T, []outmill.Lease{r.Lease()}, standing)
		require.Empty(e.T, e.ClaimAll())
		require.Zero(e.T, e.Reap(10))
	}
	e.Ack(r)
	e.RequireProcessed(r)
}

func extendTwoLeases(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	old := e.ClaimOne(owner, "m1").Lease()
	e.Elapse(2 * leaseOf)
	valid := e.ClaimOne(owner, "m1").Lease()
	for _, asked := range [][]outmill.Lease{{old, valid}, {valid, old}} {
		standing, err := e.Store.Extend(e.Ctx, leaseOf, asked)
		require.NoError(e.T, err)
		require.Equal(e.T, []outmill.Lease{valid}, standing)
	}
}

func refuseExtend(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Unchanged(r, func() {
		for _, lease := range []time.Duration{0, -time.Second} {
			_, err := e.Store.Extend(e.Ctx, lease, []outmill.Lease{r.Lease()})
			e.RequireRefusal(err, "lease %s", lease)
		}
	})
}

func negativeDelay(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.NoError(e.T, e.Store.Abandon(e.Ctx, suite.DelayedBy(-time.Hour, "boom", suite.Leases([]*outmill.Record{r}))))
	e.RequireAbout(e.Now(), e.Get(r).NextAttemptAt, "next attempt at, after an abandon")
	r = e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.NoError(e.T, e.Store.Snooze(e.Ctx, suite.DelayedBy(-time.Hour, "", suite.Leases([]*outmill.Record{r}))))
	e.RequireAbout(e.Now(), e.Get(r).NextAttemptAt, "next attempt at, after a snooze")
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

// claimsNeverGoBack prevents that a late ack of an old claim acts on a new claim with the same
// number.
func claimsNeverGoBack(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	first := e.ClaimOne(owner, "m1")
	e.Fail(first)
	e.Requeue(first)
	second := e.ClaimOne(owner, "m1")
	require.Equal(e.T, 2, second.Claims)
	e.Unchanged(second, func() { e.Ack(first) })
	e.Elapse(leaseOf + time.Minute)
	e.Reap(10)
	require.Equal(e.T, 3, e.ClaimOne(owner, "m1").Claims)
}
