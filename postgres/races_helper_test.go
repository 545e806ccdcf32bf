package postgres_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

const patience = time.Minute

// gates stop what a pool sends before it is sent.
type gates struct {
	mu   sync.Mutex
	list []*gate
}

// gate stops the nth round trip (from 1) that holds a statement with the text.
type gate struct {
	text    string
	left    int
	reached chan struct{}
	opened  chan struct{}
	open    func()
}

// beforeStatement stops before a statement of the store by its name.
func (g *gates) beforeStatement(t *testing.T, name string, nth int) *gate {
	t.Helper()
	return g.before(t, "/* outmill "+name+" */", nth)
}

func (g *gates) before(t *testing.T, text string, nth int) *gate {
	t.Helper()
	opened := make(chan struct{})
	made := &gate{text: text, left: nth, reached: make(chan struct{}), opened: opened, open: sync.OnceFunc(func() { close(opened) })}
	t.Cleanup(made.open)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, made)
	return made
}

func (g *gate) wait(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(patience):
		require.FailNow(t, "the gate was not reached", g.text)
	}
}

func (g *gates) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var texts []string
	for _, q := range data.Batch.QueuedQueries {
		texts = append(texts, q.SQL)
	}
	g.stop(texts)
	return ctx
}

func (g *gates) stop(texts []string) {
	if stopped := g.stopping(texts); stopped != nil {
		close(stopped.reached)
		<-stopped.opened
	}
}

func (g *gates) stopping(texts []string) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.list {
		found := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, one.text) })
		if !found || one.left == 0 {
			continue
		}
		if one.left--; one.left == 0 {
			return one
		}
	}
	return nil
}

func (*gates) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*gates) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (g *gates) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	g.stop([]string{data.SQL})
	return ctx
}
func (*gates) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// ring is a store, and another one on the same tables that has gates.
type ring struct {
	t      *testing.T
	db     *pgxpool.Pool
	store  conforming
	gated  *postgres.Store
	gates  *gates
	schema string
}

func newRing(t *testing.T, options storetest.Options) *ring {
	t.Helper()
	config := conformingConfig("ring", "", options)
	return newRingWith(t, readyPool(t, config), config)
}

// newRingIn is newRing in a database that other tests use too.
func newRingIn(t *testing.T, db *pgxpool.Pool, options storetest.Options) *ring {
	t.Helper()
	return newRingWith(t, db, conformingConfig(ownSchema(t, db), "", options))
}

func newRingWith(t *testing.T, db *pgxpool.Pool, conforming postgres.Config) *ring {
	t.Helper()
	r := &ring{t: t, db: db, store: newConforming(t, db, conforming), gates: &gates{}}
	require.NoError(t, r.store.Ensure(t.Context()))
	r.schema = r.store.config.Schema
	config := db.Config()
	config.ConnConfig.Tracer = r.gates
	watched, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(t, watched) })
	r.gated = newStore(t, watched, r.store.config)
	require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return r
}

// sql is a statement about the store's tables, which are written {name}.
func (r *ring) sql(statement string) string {
	return inSchema(r.schema, statement)
}

func inSchema(schema, statement string) string {
	return strings.NewReplacer("{", schema+".", "}", "").Replace(statement)
}

func (r *ring) append(key string, names ...string) []*outmill.Record {
	r.t.Helper()
	records := make([]*outmill.Record, len(names))
	for i, name := range names {
		records[i] = &outmill.Record{Topic: "orders", Key: key, MessageID: name}
	}
	require.NoError(r.t, r.store.Append(r.t.Context(), records...))
	return records
}

func (r *ring) claim(owner outmill.OwnerToken, limit int) []*outmill.Record {
	r.t.Helper()
	return claimed(r.t, r.store, claimOf(owner, limit, outmill.OrderKey, "orders"))
}

// blocked waits until n sessions of the database wait for a lock.
func (r *ring) blocked(n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return valueOf[int](r.t, r.db,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) >= n
	}, patience, 5*time.Millisecond)
}

// doneOrBlocked waits until a call is done, or waits for a lock that a call which is stopped has.
func (r *ring) doneOrBlocked(done func() bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return done() || valueOf[bool](r.t, r.db, sqlWaits) }, patience, 5*time.Millisecond)
}

// extendAll extends all leases in a transaction of the test's own, as the store does.
func (r *ring) extendAll() pgx.Tx {
	r.t.Helper()
	tx := r.begin()
	r.execIn(tx, `UPDATE {batches} SET lease_until = lease_until + 3600000000 WHERE size > 0`)
	r.execIn(tx, `UPDATE {records} SET wake_at = wake_at + 3600000000 WHERE stage = 4`)
	return tx
}

// kinds are the places of a record that is due: with a delay it is in the table of records.
var kinds = map[string]time.Duration{"in the log": 0, "among the records": time.Microsecond}

// appendAs appends a record of the topic orders with a delay of kinds, and waits until it is due.
func (r *ring) appendAs(delay time.Duration, key, name string) {
	r.t.Helper()
	record := &outmill.Record{Topic: "orders", Key: key, MessageID: name, Delay: delay}
	require.NoError(r.t, r.store.Append(r.t.Context(), record))
}

// begin begins a transaction of the test's own.
func (r *ring) begin() pgx.Tx {
	r.t.Helper()
	own := context.WithoutCancel(r.t.Context())
	tx, err := r.db.Begin(own)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = tx.Rollback(own) })
	return tx
}

func (r *ring) execIn(tx pgx.Tx, statement string, args ...any) {
	r.t.Helper()
	_, err := tx.Exec(r.t.Context(), r.sql(statement), args...)
	require.NoError(r.t, err)
}

func namesOf(records []*outmill.Record) []string {
	names := []string{}
	for _, r := range records {
		names = append(names, r.MessageID)
	}
	return names
}

// result holds the values that a call in a goroutine of its own returned.
type result[T any] struct {
	value T
	err   error
}

func async[T any](fn func() (T, error)) <-chan result[T] {
	done := make(chan result[T], 1)
	go func() {
		value, err := fn()
		done <- result[T]{value, err}
	}()
	return done
}

func await[T any](t *testing.T, done <-chan result[T]) T {
	t.Helper()
	select {
	case r := <-done:
		require.NoError(t, r.err)
		return r.value
	case <-time.After(patience):
		require.FailNow(t, "the call did not return")
		panic("unreachable")
	}
}

// drained are the names of all records of a group that can be claimed, in the order in which claims by key return them.
func (r *ring) drained(group string) (names []string) {
	r.t.Helper()
	req := claimOf(outmill.NewOwnerToken(), 1000, outmill.OrderKey)
	req.Group = group
	for {
		found := claimed(r.t, r.store, req)
		if len(found) == 0 {
			return names
		}
		names = append(names, namesOf(found)...)
		require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(found)))
	}
}
