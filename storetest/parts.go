package storetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// partSentences are about fair topics, whose tenants have parts.
func partSentences() []sentence {
	list := []sentence{
		{"a store with other fair topics than the database neither appends nor claims, and shows what there is", partsOfAnother},
		{"the fair topics of a database change only while the topics that change have nothing undelivered", partsChange},
		{"the first Ensure with fair topics sets them, and a later one changes nothing", partsFirst},
		{"ServesTurns is true for the topics of the setting only", partsOfTopics},
		{"a claim in the order of a fair topic is refused", partsNotOfTopicOrder},
		{"a claim leaves out the parts that are full, and takes no more of a part than its limit", partsFull},
		{"a topic that is not fair has no parts, so neither Full nor PartLimit has an effect", partsElsewhere},
		{"a claim goes on with the parts that the one before has not served", partsGoOn},
		{"Stats counts the records of all parts of a topic as one", partsStats},
		{"what waits for a first group, or is given back by one, is delivered in its part", partsOfNoGroup},
		{"a pause of a tenant stops its records only, and the others of its part come", partsPaused},
		{"a claim without an order takes what claims by key hold, in each part", partsFreeOfHeld},
		{"FirstWaiting returns what was appended first, of whichever part, and counts what is before a record", partsWaiting},
	}
	for i, order := range []func(*outmill.ClaimRequest){suite.Plainly, suite.ByKey} {
		name := []string{"without an order", "by key"}[i]
		bind := func(check func(*env, func(*outmill.ClaimRequest))) func(*env) {
			return func(e *env) { check(e.parted(orders), order) }
		}
		list = append(list,
			sentence{"a claim takes as much of each part, " + name, bind(partsShare)},
			sentence{"ten records of a tenant beside thousands of another come within five claims, if their parts differ, " + name,
				bind(partsBeside)},
			sentence{"a claim of parts that have more than the limit of a part ends, " + name, bind(partsLimited)},
			sentence{"a claim of parts that have more than its bytes ends, and all of them come, " + name, bind(partsOfBytes)},
			sentence{"a claim passes over thousands of expired records of some parts, " + name, bind(partsOfManyExpired)},
			sentence{"due again, leased or held, each record of each part comes, in the order of its key, " + name, bind(partsComplete)})
	}
	return list
}

func partsOfTopics(e *env) {
	turns, ok := outmill.As[storekit.TenantTurns](e.parted(orders, "bill*").Store)
	require.True(e.T, ok)
	for topic, want := range map[string]bool{orders: true, "bills": true, "order": false, "mail": false} {
		require.Equal(e.T, want, turns.ServesTurns(topic), topic)
	}
}

// parted is a store with these fair topics, which are those of the database.
func (e *env) parted(topics ...string) *env {
	e.T.Helper()
	other := e.partedAs(topics...)
	require.NoError(e.T, other.setFair())
	return other
}

// partedAs is a store with these fair topics.
func (e *env) partedAs(topics ...string) *env {
	e.T.Helper()
	if !e.hasParts() {
		e.T.Skip("the harness opens no store of package engine with fair topics")
	}
	return &env{e.On(e.Harness.(Fair).ReopenFair(topics...))}
}

// hasParts reports whether the harness opens stores of package engine with fair topics.
func (e *env) hasParts() bool {
	_, fair := e.Harness.(Fair)
	return fair
}

// setFair is SetFairTopics of the store.
func (e *env) setFair() error {
	return e.Store.(interface {
		SetFairTopics(ctx context.Context) error
	}).SetFairTopics(e.Ctx)
}

// partTenants are n tenants with different parts of the topic orders.
func partTenants(n int) (tenants []string) {
	seen := map[int]bool{}
	for i := 0; len(tenants) < n; i++ {
		tenant := fmt.Sprint("t", i)
		if part := storekit.PartOf(orders, tenant); !seen[part] {
			seen[part] = true
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// ofTenants makes each n records of the tenants.
func ofTenants(n int, tenants ...string) (list []*outmill.Record) {
	for _, tenant := range tenants {
		list = append(list, ofTenant(tenant, n)...)
	}
	return list
}

func partsShare(e *env, order func(*outmill.ClaimRequest)) {
	tenants := partTenants(4)
	e.Filled(slices.Concat(ofTenants(90, tenants[:3]...), ofTenants(3, tenants[3]))...)
	got := tally(e.Claim(outmill.NewOwnerToken(), order, suite.Limit(40)))
	for _, tenant := range tenants[:3] {
		// Others may get rows that the claim was about to take.
		require.GreaterOrEqual(e.T, got[tenant], 2, "%v", got)
	}
}

func partsBeside(e *env, order func(*outmill.ClaimRequest)) {
	tenants := partTenants(2)
	e.Register(group)
	for batch := range slices.Chunk(ofTenant(tenants[0], suite.Large(20_000)), 1000) {
		e.Append(batch...)
	}
	e.Append(ofTenant(tenants[1], 10)...)
	owner, got := outmill.NewOwnerToken(), 0
	for range 5 {
		found := e.Claim(owner, order, suite.Limit(20))
		require.Len(e.T, found, 20)
		got += tally(found)[tenants[1]]
	}
	require.Equal(e.T, 10, got)
}

// partsComplete settles in every way.
func partsComplete(e *env, order func(*outmill.ClaimRequest)) {
	e.Register(group)
	want, perKey := map[string]bool{}, map[string][]string{}
	for i := range 120 {
		tenant := fmt.Sprint("t", i%12)
		key, name := fmt.Sprint(tenant, "-", i%24), fmt.Sprintf("m%04d", i)
		e.Append(suite.Rec(orders, name, withKeyAndTenant(key, tenant)))
		want[name], perKey[key] = true, append(perKey[key], name)
	}
	ordered := suite.Request(outmill.OwnerToken{}, order).Order == outmill.OrderKey
	got := map[string][]string{}
	for round := 0; len(want) > 0; round++ {
		require.Less(e.T, round, 400, "%d records do not come", len(want))
		owner := outmill.NewOwnerToken()
		stopped := map[string]bool{}
		for i, r := range e.Claim(owner, order, suite.Limit(1+round%17)) {
			how := (i + round) % 4
			if stopped[r.Key] {
				how = 1
			}
			stopped[r.Key] = how != 3
			switch how {
			case 0:
				e.Abandon(leaseOf, r)
			case 1:
				e.Release(r)
			case 2:
				// The lease ends.
			default:
				require.True(e.T, want[r.MessageID], "%s comes once", r.MessageID)
				delete(want, r.MessageID)
				got[r.Key] = append(got[r.Key], r.MessageID)
				e.Ack(r)
			}
		}
		if round%3 == 2 {
			e.Elapse(2 * suite.LeaseOf)
		}
	}
	if ordered {
		require.Equal(e.T, perKey, got)
	}
}

func partsGoOn(e *env) {
	e = e.parted(orders)
	tenants := partTenants(20)
	e.Filled(ofTenants(40, tenants...)...)
	owner, got := outmill.NewOwnerToken(), map[string]int{}
	for range 25 {
		for tenant, n := range tally(e.Claim(owner, suite.Limit(8))) {
			got[tenant] += n
		}
	}
	// Claims that began with the same parts would have five tenants.
	require.Greater(e.T, len(got), 12, "%v", got)
}

func partsOfAnother(e *env) {
	fair := e.parted(orders)
	fair.Filled(ofTenant("a", 1)...)
	for _, topics := range [][]string{nil, {"bills"}} {
		other := e.partedAs(topics...)
		require.ErrorIs(e.T, other.Store.Append(e.Ctx, ofTenant("b", 1)...), outmill.ErrFairTopics)
		_, err := other.Store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken()))
		require.ErrorIs(e.T, err, outmill.ErrFairTopics)
		require.Len(e.T, other.List(outmill.ListQuery{}), 1)
	}
	fair.ClaimOne(outmill.NewOwnerToken(), "a.0000")
}

func partsChange(e *env) {
	fair := e.parted(orders)
	fair.Filled(ofTenant("a", 2)...)
	plain := e.partedAs("other")
	require.ErrorIs(e.T, plain.setFair(), outmill.ErrUndelivered)
	records := fair.ClaimN(outmill.NewOwnerToken(), 2)
	require.ErrorIs(e.T, plain.setFair(), outmill.ErrUndelivered, "a leased record is undelivered")
	fair.Ack(records...)
	fair.Append(suite.Rec("bills", "b"))
	require.NoError(e.T, plain.setFair())
	require.ErrorIs(e.T, fair.Store.Append(e.Ctx, ofTenant("a", 1)...), outmill.ErrFairTopics)
	plain.Append(ofTenant("a", 1)...)
	require.Len(e.T, plain.ClaimOn(outmill.NewOwnerToken(), suite.ByTopic), 2)
}

func partsFirst(e *env) {
	first := e.partedAs(orders)
	require.NoError(e.T, first.Store.(outmill.Schema).Ensure(e.Ctx))
	first.Filled(ofTenant("a", 1)...)
	second := e.partedAs("bills")
	require.NoError(e.T, second.Store.(outmill.Schema).Ensure(e.Ctx))
	require.ErrorIs(e.T, second.Store.Append(e.Ctx, ofTenant("a", 1)...), outmill.ErrFairTopics)
	first.Append(ofTenant("a", 2)[1:]...)
}

func partsNotOfTopicOrder(e *env) {
	e = e.parted("order*")
	e.Register(group)
	named := suite.Request(outmill.NewOwnerToken(), suite.ByTopic)
	named.Topics = outmill.Topics{Include: []string{orders}}
	_, err := e.Store.Claim(e.Ctx, named)
	require.ErrorIs(e.T, err, outmill.ErrFairOrder)
	e.Append(slices.Concat(ofTenants(1, partTenants(3)...), []*outmill.Record{suite.Rec("bills", "b")})...)
	_, err = e.Store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken(), suite.ByTopic))
	require.ErrorIs(e.T, err, outmill.ErrFairOrder)
	named.Topics = outmill.Topics{Include: []string{"bills"}}
	found, err := e.Store.Claim(e.Ctx, named)
	require.NoError(e.T, err)
	require.Len(e.T, found, 1)
}

func partsFull(e *env) {
	e = e.parted(orders)
	tenants := partTenants(3)
	e.Filled(ofTenants(30, tenants...)...)
	full := func(mask uint64) func(*outmill.ClaimRequest) {
		return func(r *outmill.ClaimRequest) {
			r.PartLimit = 4
			r.Full = func(_, topic string) uint64 {
				require.Equal(e.T, orders, topic)
				return mask
			}
		}
	}
	owner := outmill.NewOwnerToken()
	within := func(found []*outmill.Record, room ...string) {
		// Others may get rows that the claim was about to take, so it may have less.
		require.NotEmpty(e.T, found)
		for tenant, n := range tally(found) {
			require.Contains(e.T, room, tenant)
			require.LessOrEqual(e.T, n, 4)
		}
	}
	within(e.Claim(owner, full(0)), tenants...)
	for _, order := range []func(*outmill.ClaimRequest){suite.Plainly, suite.ByKey} {
		found := e.Claim(owner, order, full(1<<storekit.PartOf(orders, tenants[1])))
		within(found, tenants[0], tenants[2])
		require.Empty(e.T, e.Claim(owner, order, full(1<<64-1)))
	}
	for _, r := range e.List(outmill.ListQuery{Status: outmill.StatusPending}) {
		require.Zero(e.T, r.Claims, "nothing is claimed to be given back")
	}
}

func partsElsewhere(e *env) {
	e.Filled(ofTenants(3, partTenants(3)...)...)
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), func(r *outmill.ClaimRequest) {
		r.PartLimit, r.Full = 1, func(string, string) uint64 { return 1<<64 - 1 }
	}), 9)
}

func partsStats(e *env) {
	e = e.parted(orders)
	e.Filled(ofTenants(5, partTenants(6)...)...)
	e.ClaimN(outmill.NewOwnerToken(), 4)
	stats, err := e.Store.(outmill.Inspector).Stats(e.Ctx, 0)
	require.NoError(e.T, err)
	require.Len(e.T, stats, 1)
	require.Equal(e.T, []int{26, 4}, []int{stats[0].Pending, stats[0].Leased})
	require.False(e.T, stats[0].OldestDue.IsZero())
	stats, err = e.Store.(outmill.Inspector).Stats(e.Ctx, 7)
	require.NoError(e.T, err)
	require.Equal(e.T, 7, stats[0].Pending)
}

func partsOfNoGroup(e *env) {
	e = e.parted(orders)
	tenants := partTenants(5)
	e.Append(ofTenants(2, tenants...)...)
	e.Register(group)
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey, suite.Limit(3)), 3)
	dropped, err := e.Store.(outmill.Inspector).DropGroup(e.Ctx, group)
	require.NoError(e.T, err)
	require.Equal(e.T, 10, dropped.GivenBack)
	e.Register(group)
	want := map[string]int{}
	for _, tenant := range tenants {
		want[tenant] = 2
	}
	require.Equal(e.T, want, tally(e.ClaimOn(outmill.NewOwnerToken(), suite.ByKey)))
}

func partsPaused(e *env) {
	e = e.parted(orders)
	of, part := []string{"a"}, storekit.PartOf(orders, "a")
	for i := 0; len(of) < 2; i++ {
		if tenant := fmt.Sprint("same", i); storekit.PartOf(orders, tenant) == part {
			of = append(of, tenant)
		}
	}
	for _, order := range []func(*outmill.ClaimRequest){suite.Plainly, suite.ByKey} {
		e.pause(roles.PauseScope{TenantID: "a"})
		e.Register(group)
		e.Append(ofTenants(4, of...)...)
		owner := outmill.NewOwnerToken()
		others := e.ClaimOn(owner, order)
		require.Equal(e.T, map[string]int{of[1]: 4}, tally(others))
		e.resume(roles.PauseScope{TenantID: "a"})
		resumed := e.ClaimOn(owner, order)
		require.Equal(e.T, map[string]int{"a": 4}, tally(resumed))
		e.Ack(append(others, resumed...)...)
	}
}
