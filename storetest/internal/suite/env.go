package suite

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

const (
	// Tolerance is how far two clock readings around one call may lie apart, and
	// what a store may lose when it stores a time.
	Tolerance = 30 * time.Second

	// Group is the group of sentences that need only one group.
	Group = "readers"
	// Worker is the name of the worker that acks in sentences.
	Worker = "host-1:4711"
	// Orders is the topic of sentences that need only one topic.
	Orders = "orders"
	// LeaseOf is the duration of leases, unless a claim sets another one.
	LeaseOf = 10 * time.Minute
)

// Harness is storetest.Harness, which documents the methods.
type Harness interface {
	Store() outmill.Store
	Reopen() outmill.Store
	Elapse(store outmill.Store, d time.Duration)
	Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error)
}

// patience ends a test whose store hangs. A busy machine that runs all tests needs minutes for the
// longest ones.
func patience() time.Duration {
	if All() {
		return 10 * time.Minute
	}
	return 2 * time.Minute
}

// Soon is how long a test waits for what nothing holds up, or for calls that must not wait. A store that hangs, or that
// waits for a transaction of the test, needs longer.
func Soon() time.Duration { return patience() / 4 }

// Options is storetest.Options.
type Options struct {
	Retain      time.Duration
	DedupWindow time.Duration
	NoSchema    bool
}

// Env has the store of one test, and short methods for its calls.
type Env struct {
	T       *testing.T
	Ctx     context.Context
	Harness Harness
	Options Options
	Store   outmill.Store
	open    func(t *testing.T, options Options) Harness
	short   bool
	claims  *atomic.Int64
}

// NewEnv opens a store for the test.
func NewEnv(t *testing.T, open func(t *testing.T, options Options) Harness, options Options) *Env {
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	t.Cleanup(cancel)
	harness := open(t, options)
	require.NotNil(t, harness, "New returned no Harness")
	store := harness.Store()
	require.NotNil(t, store, "Harness.Store returned no store")
	return &Env{T: t, Ctx: ctx, Harness: harness, Options: options, Store: store, open: open, claims: &atomic.Int64{}}
}

// Long skips a sentence of a suite that takes seconds, unless all tests are asked for. leftOut
// describes the skipped work. Tests that check one sentence alone never skip it.
func (e *Env) Long(leftOut string) {
	if e.short {
		e.T.Skipf("skipped: %s; %s=1 has them run", leftOut, EnvAll)
	}
}

// Bare returns an Env with another empty store, without a schema.
func (e *Env) Bare() *Env {
	options := e.Options
	options.NoSchema = true
	return NewEnv(e.T, e.open, options)
}

// Fresh returns an Env with another empty store.
func (e *Env) Fresh() *Env { return NewEnv(e.T, e.open, e.Options) }

// Together runs n calls at the same time, and waits for them. The first that fails ends the others, which may wait for its part of the
// work: until then Ctx is theirs.
func (e *Env) Together(n int, call func(i int) error) {
	e.T.Helper()
	was := e.Ctx
	all, ctx := errgroup.WithContext(was)
	e.Ctx = ctx
	for i := range n {
		all.Go(func() error { return call(i) })
	}
	err := all.Wait()
	e.Ctx = was
	require.NoError(e.T, err)
}

// Reopen returns a second store on the same database.
func (e *Env) Reopen() outmill.Store {
	e.T.Helper()
	return e.Harness.Reopen()
}

// On returns e with another store on the same database.
func (e *Env) On(store outmill.Store) *Env {
	other := *e
	other.Store = store
	return &other
}

// Under returns e with another context.
func (e *Env) Under(ctx context.Context) *Env {
	other := *e
	other.Ctx = ctx
	return &other
}

// Elapse makes d pass for the database.
func (e *Env) Elapse(d time.Duration) {
	e.T.Helper()
	e.Harness.Elapse(e.Store, d)
}

// Begin opens a user's transaction.
func (e *Env) Begin() (ctx context.Context, commit, rollback func()) {
	e.T.Helper()
	ctx, end, undo := e.Harness.Begin(e.Store)
	return ctx,
		func() { e.T.Helper(); require.NoError(e.T, end(), "commit") },
		func() { e.T.Helper(); require.NoError(e.T, undo(), "rollback") }
}

// Large returns n, or less if the race detector slows the engine down or if not all tests must
// run.
func Large(n int) int {
	if Brief() {
		return n / 10
	}
	return n
}

// Append appends the records.
func (e *Env) Append(records ...*outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.Store.Append(e.Ctx, records...), "Append")
}

// Register makes the group read the topics, or all topics if none is named.
func (e *Env) Register(group string, include ...string) {
	e.T.Helper()
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: include}}),
		"RegisterGroup")
}

// Filled registers Group and appends the records.
func (e *Env) Filled(records ...*outmill.Record) {
	e.T.Helper()
	e.Register(Group)
	e.Append(records...)
}

// Claim claims once.
func (e *Env) Claim(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.T.Helper()
	claim := e.Store.Claim
	if raw := e.RawClaims(); raw != nil && e.claims.Add(1)%2 == 0 {
		claim = whole(raw)
	}
	found, err := claim(e.Ctx, Request(owner, changes...))
	require.NoError(e.T, err, "Claim")
	return found
}

// RawClaims are those of the store; nil is none. Every second claim of a sentence is a raw one.
func (e *Env) RawClaims() roles.RawClaims {
	if raw, ok := e.Store.(roles.Raw); ok {
		return raw.RawClaims(e.Store)
	}
	return nil
}

// whole returns a claim whose records have their metadata.
func whole(raw roles.RawClaims) func(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	return func(ctx context.Context, req outmill.ClaimRequest) (records []*outmill.Record, err error) {
		found, err := raw(ctx, req)
		for _, r := range found {
			records = append(records, r.Whole())
		}
		return records, err
	}
}

// ClaimOne claims one record and checks its name.
func (e *Env) ClaimOne(owner outmill.OwnerToken, name string, changes ...func(*outmill.ClaimRequest)) *outmill.Record {
	e.T.Helper()
	found := e.Claim(owner, append(changes, Limit(1))...)
	require.Equal(e.T, []string{name}, Names(found), "claimed")
	return found[0]
}

// ClaimNamed claims all records and returns them by their names, because the order of an
// unordered claim is often up to the store.
func (e *Env) ClaimNamed(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) map[string]*outmill.Record {
	e.T.Helper()
	return ByName(e.ClaimOn(owner, changes...))
}

// ClaimAll claims until no record is left, with a new owner.
func (e *Env) ClaimAll(changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.T.Helper()
	return e.ClaimOn(outmill.NewOwnerToken(), changes...)
}

// ClaimOn claims until no record is left, because a store may return fewer records than the
// limit of a claim.
func (e *Env) ClaimOn(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.T.Helper()
	var all []*outmill.Record
	for {
		found := e.Claim(owner, changes...)
		if len(found) == 0 {
			return all
		}
		all = append(all, found...)
		require.LessOrEqual(e.T, len(all), 100_000, "the store hands out records without end")
	}
}

// ClaimN claims n records.
func (e *Env) ClaimN(owner outmill.OwnerToken, n int, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.T.Helper()
	var all []*outmill.Record
	for len(all) < n {
		found := e.Claim(owner, append(changes, Limit(n-len(all)))...)
		require.NotEmpty(e.T, found, "claimed %d of %d", len(all), n)
		all = append(all, found...)
	}
	return all
}

// Ack acks the records.
func (e *Env) Ack(records ...*outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.Store.Ack(e.Ctx, Worker, Leases(records)), "Ack")
}

// Release gives the records back.
func (e *Env) Release(records ...*outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.Store.Release(e.Ctx, Leases(records)), "Release")
}

// Abandon makes the records due again after the delay.
func (e *Env) Abandon(delay time.Duration, records ...*outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.Store.Abandon(e.Ctx, DelayedBy(delay, "boom", Leases(records))), "Abandon")
}

// Snooze makes the records due again after the delay; no attempt is counted.
func (e *Env) Snooze(delay time.Duration, records ...*outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.Store.Snooze(e.Ctx, DelayedBy(delay, "", Leases(records))), "Snooze")
}

// Fail makes the records dead.
func (e *Env) Fail(records ...*outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.Store.Fail(e.Ctx, Failures(false, "poison", Leases(records))), "Fail")
}

// Park makes the records and the later records of their keys dead.
func (e *Env) Park(records ...*outmill.Record) {
	e.T.Helper()
	require.NoError(e.T, e.Store.Fail(e.Ctx, Failures(true, "poison", Leases(records))), "Fail")
}

// Reap reaps expired leases.
func (e *Env) Reap(limit int) int {
	e.T.Helper()
	n, err := e.Store.ReapExpired(e.Ctx, limit)
	require.NoError(e.T, err, "ReapExpired")
	return n
}

// Requeue requeues the records, and returns how many were dead.
func (e *Env) Requeue(records ...*outmill.Record) int {
	e.T.Helper()
	n, err := e.Store.Requeue(e.Ctx, IDs(records)...)
	require.NoError(e.T, err, "Requeue")
	return n
}

// Delete deletes the records, and returns how many there were.
func (e *Env) Delete(records ...*outmill.Record) int {
	e.T.Helper()
	n, err := e.Store.Delete(e.Ctx, IDs(records)...)
	require.NoError(e.T, err, "Delete")
	return n
}

// Get returns the record as the store has it now.
func (e *Env) Get(r *outmill.Record) *outmill.Record {
	e.T.Helper()
	found, err := e.Store.Get(e.Ctx, r.ID)
	require.NoError(e.T, err, "Get of %s", r.MessageID)
	return found
}

// RequireGone checks that the store does not have the record.
func (e *Env) RequireGone(r *outmill.Record) {
	e.T.Helper()
	_, err := e.Store.Get(e.Ctx, r.ID)
	require.ErrorIs(e.T, err, outmill.ErrNotFound, "Get of %s", r.MessageID)
}

// RequireStatus checks the status of the records.
func (e *Env) RequireStatus(status outmill.Status, records ...*outmill.Record) {
	e.T.Helper()
	for _, r := range records {
		require.Equal(e.T, status, e.Get(r).Status, "status of %s", r.MessageID)
	}
}

// RequireProcessed checks an acked record, in both modes.
func (e *Env) RequireProcessed(r *outmill.Record) {
	e.T.Helper()
	if e.Options.Retain == 0 {
		e.RequireGone(r)
		return
	}
	e.RequireStatus(outmill.StatusProcessed, r)
}

// List returns all records that the query selects, in several pages.
func (e *Env) List(query outmill.ListQuery) []*outmill.Record {
	e.T.Helper()
	return ListAll(e.Ctx, e.T, e.Store, query)
}

// ListAll returns all records that the query selects, in several pages.
func ListAll(ctx context.Context, t require.TestingT, store outmill.Store, query outmill.ListQuery) []*outmill.Record {
	all, err := TryListAll(ctx, store, query)
	require.NoError(t, err, "List")
	return all
}

// TryListAll is ListAll for goroutines that must not end the test, and for stores that may fail.
func TryListAll(ctx context.Context, store outmill.Store, query outmill.ListQuery) ([]*outmill.Record, error) {
	query.Limit, query.Content = 1000, true
	var all []*outmill.Record
	for {
		page, err := store.List(ctx, query)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < query.Limit {
			return all, nil
		}
		query.After = page[len(page)-1].ID
	}
}

// Now returns the time of the database's clock. It appends a record to read it.
func (e *Env) Now() time.Time {
	e.T.Helper()
	clock := Rec("clock", "tick")
	e.Append(clock)
	created := e.Get(clock).CreatedAt
	require.Equal(e.T, 1, e.Delete(clock), "deleted")
	return created
}

// RequireAbout checks a time, with the tolerance of two readings of a clock.
func (e *Env) RequireAbout(want, got time.Time, what string) {
	e.T.Helper()
	require.WithinDuration(e.T, want, got, Tolerance, what)
}
