package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

const (
	// patience ends a test whose store hangs.
	patience = 2 * time.Minute
	// tolerance is how far two clock readings around one call may lie apart, and
	// what a store may lose when it stores a time.
	tolerance = 30 * time.Second

	group   = "readers"
	worker  = "host-1:4711"
	orders  = "orders"
	leaseOf = 10 * time.Minute
)

// env is what one test works with: a store of its own and short words.
type env struct {
	t       *testing.T
	ctx     context.Context
	h       Harness
	options Options
	store   outmill.Store
	// inSteps: see WalkInSteps.
	inSteps bool
}

func newEnv(t *testing.T, h Harness, options Options) *env {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	store := h.New(t, options)
	require.NotNil(t, store, "Harness.New returned no store")
	return &env{t: t, ctx: ctx, h: h, options: options, store: store}
}

func (e *env) reopen() outmill.Store {
	e.t.Helper()
	return e.h.Reopen(e.t, e.store)
}

// on is e with another store on the same database.
func (e *env) on(store outmill.Store) *env {
	other := *e
	other.store = store
	return &other
}

func (e *env) elapse(d time.Duration) {
	e.t.Helper()
	e.h.Elapse(e.t, e.store, d)
}

// begin opens a user's transaction.
func (e *env) begin() (ctx context.Context, commit, rollback func()) {
	e.t.Helper()
	ctx, end, undo := e.h.Begin(e.t, e.store)
	return ctx,
		func() { e.t.Helper(); require.NoError(e.t, end(), "commit") },
		func() { e.t.Helper(); require.NoError(e.t, undo(), "rollback") }
}

// large is n, or less where the race detector slows the engine down, or where not
// all tests are asked for.
func large(n int) int {
	if underRace || !all() {
		return n / 10
	}
	return n
}

// rec makes a record. Tests name records by their message ids, so that a
// failure prints names.
func rec(topic, name string, changes ...func(*outmill.Record)) *outmill.Record {
	r := &outmill.Record{Topic: topic, MessageID: name, Payload: []byte("payload of " + name)}
	for _, change := range changes {
		change(r)
	}
	return r
}

func withKey(key string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Key = key }
}

func withDelay(d time.Duration) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Delay = d }
}

func withTTL(d time.Duration) func(*outmill.Record) {
	return func(r *outmill.Record) { r.TimeToLive = d }
}

func withDedup(key string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.DedupKey = key }
}

func keyed(key string, names ...string) []*outmill.Record {
	return recs(orders, withKey(key), names...)
}

func recs(topic string, change func(*outmill.Record), names ...string) []*outmill.Record {
	list := make([]*outmill.Record, len(names))
	for i, name := range names {
		list[i] = rec(topic, name, change)
	}
	return list
}

func plain(*outmill.Record) {}

func (e *env) append(records ...*outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.store.Append(e.ctx, records...), "Append")
}

// register makes the group read the topics, all of them where none is named.
func (e *env) register(group string, include ...string) {
	e.t.Helper()
	require.NoError(e.t, e.store.RegisterGroup(e.ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: include}}), "RegisterGroup")
}

// filled registers the usual group and appends.
func (e *env) filled(records ...*outmill.Record) {
	e.t.Helper()
	e.register(group)
	e.append(records...)
}

func request(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) outmill.ClaimRequest {
	req := outmill.ClaimRequest{Owner: owner, Group: group, Limit: 100, Lease: leaseOf}
	for _, change := range changes {
		change(&req)
	}
	return req
}

func limit(n int) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Limit = n }
}

func ofGroup(name string) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Group = name }
}

func from(include ...string) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Topics.Include = include }
}

func inOrder(order outmill.Order, policy outmill.KeyPolicy) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Order, r.KeyPolicy = order, policy }
}

func byKey(r *outmill.ClaimRequest) { r.Order = outmill.OrderKey }

func byTopic(r *outmill.ClaimRequest) { r.Order = outmill.OrderTopic }

func (e *env) claim(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.t.Helper()
	found, err := e.store.Claim(e.ctx, request(owner, changes...))
	require.NoError(e.t, err, "Claim")
	return found
}

// claimOne claims one record and names it.
func (e *env) claimOne(owner outmill.OwnerToken, name string, changes ...func(*outmill.ClaimRequest)) *outmill.Record {
	e.t.Helper()
	found := e.claim(owner, append(changes, limit(1))...)
	require.Equal(e.t, []string{name}, names(found), "claimed")
	return found[0]
}

// claimNamed claims all there is, by the names of the records: which one of
// several an unordered claim hands out first is often the store's affair.
func (e *env) claimNamed(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) map[string]*outmill.Record {
	e.t.Helper()
	return byName(e.claimOn(owner, changes...))
}

func byName(records []*outmill.Record) map[string]*outmill.Record {
	all := map[string]*outmill.Record{}
	for _, r := range records {
		all[r.MessageID] = r
	}
	return all
}

// claimAll claims until there is nothing more, with an owner of its own.
func (e *env) claimAll(changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.t.Helper()
	return e.claimOn(outmill.NewOwnerToken(), changes...)
}

// claimOn claims until there is nothing more: how many records one claim hands
// out, up to its limit, is the store's affair.
func (e *env) claimOn(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.t.Helper()
	var all []*outmill.Record
	for {
		found := e.claim(owner, changes...)
		if len(found) == 0 {
			return all
		}
		all = append(all, found...)
		require.LessOrEqual(e.t, len(all), 100_000, "the store hands out records without end")
	}
}

// claimN claims n records.
func (e *env) claimN(owner outmill.OwnerToken, n int, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.t.Helper()
	var all []*outmill.Record
	for len(all) < n {
		found := e.claim(owner, append(changes, limit(n-len(all)))...)
		require.NotEmpty(e.t, found, "claimed %d of %d", len(all), n)
		all = append(all, found...)
	}
	return all
}

func (e *env) ack(records ...*outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.store.Ack(e.ctx, worker, leases(records)), "Ack")
}

func (e *env) release(records ...*outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.store.Release(e.ctx, leases(records)), "Release")
}

func (e *env) abandon(delay time.Duration, records ...*outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.store.Abandon(e.ctx, delayedBy(delay, "boom", leases(records))), "Abandon")
}

func (e *env) snooze(delay time.Duration, records ...*outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.store.Snooze(e.ctx, delayedBy(delay, "", leases(records))), "Snooze")
}

func (e *env) fail(records ...*outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.store.Fail(e.ctx, failures(false, "poison", leases(records))), "Fail")
}

func (e *env) park(records ...*outmill.Record) {
	e.t.Helper()
	require.NoError(e.t, e.store.Fail(e.ctx, failures(true, "poison", leases(records))), "Fail")
}

func (e *env) reap(limit int) int {
	e.t.Helper()
	n, err := e.store.ReapExpired(e.ctx, limit)
	require.NoError(e.t, err, "ReapExpired")
	return n
}

func (e *env) requeue(records ...*outmill.Record) int {
	e.t.Helper()
	n, err := e.store.Requeue(e.ctx, ids(records)...)
	require.NoError(e.t, err, "Requeue")
	return n
}

func (e *env) delete(records ...*outmill.Record) int {
	e.t.Helper()
	n, err := e.store.Delete(e.ctx, ids(records)...)
	require.NoError(e.t, err, "Delete")
	return n
}

// get returns the record as the store has it now.
func (e *env) get(r *outmill.Record) *outmill.Record {
	e.t.Helper()
	found, err := e.store.Get(e.ctx, r.ID)
	require.NoError(e.t, err, "Get of %s", r.MessageID)
	return found
}

func (e *env) requireGone(r *outmill.Record) {
	e.t.Helper()
	_, err := e.store.Get(e.ctx, r.ID)
	require.ErrorIs(e.t, err, outmill.ErrNotFound, "Get of %s", r.MessageID)
}

func (e *env) requireStatus(status outmill.Status, records ...*outmill.Record) {
	e.t.Helper()
	for _, r := range records {
		require.Equal(e.t, status, e.get(r).Status, "status of %s", r.MessageID)
	}
}

// requireProcessed holds for an acked record in either mode.
func (e *env) requireProcessed(r *outmill.Record) {
	e.t.Helper()
	if e.options.Retain == 0 {
		e.requireGone(r)
		return
	}
	e.requireStatus(outmill.StatusProcessed, r)
}

// list pages through everything that the query selects.
func (e *env) list(query outmill.ListQuery) []*outmill.Record {
	e.t.Helper()
	return listAll(e.ctx, e.t, e.store, query)
}

func listAll(ctx context.Context, t require.TestingT, store outmill.Store, query outmill.ListQuery) []*outmill.Record {
	query.Limit = 1000
	var all []*outmill.Record
	for {
		page, err := store.List(ctx, query)
		require.NoError(t, err, "List")
		all = append(all, page...)
		if len(page) < query.Limit {
			return all
		}
		query.After = page[len(page)-1].ID
	}
}

// now reads the database's clock off a record appended for that.
func (e *env) now() time.Time {
	e.t.Helper()
	clock := rec("clock", "tick")
	e.append(clock)
	created := e.get(clock).CreatedAt
	require.Equal(e.t, 1, e.delete(clock), "deleted")
	return created
}

func (e *env) requireAbout(want, got time.Time, what string) {
	e.t.Helper()
	require.WithinDuration(e.t, want, got, tolerance, what)
}

func names(records []*outmill.Record) []string {
	list := make([]string, len(records))
	for i, r := range records {
		list[i] = r.MessageID
	}
	return list
}

func ids(records []*outmill.Record) []outmill.WorkItemID {
	list := make([]outmill.WorkItemID, len(records))
	for i, r := range records {
		list[i] = r.ID
	}
	return list
}

func leases(records []*outmill.Record) []outmill.Lease {
	list := make([]outmill.Lease, len(records))
	for i, r := range records {
		list[i] = r.Lease()
	}
	return list
}

func delayedBy(delay time.Duration, reason string, leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i] = outmill.Settlement{Lease: l, Delay: delay, Err: reason}
	}
	return list
}

func failures(park bool, reason string, leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i] = outmill.Settlement{Lease: l, Err: reason, Park: park}
	}
	return list
}
