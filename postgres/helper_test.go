package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

const readers = "readers"

func claimOf(owner outmill.OwnerToken, limit int, order outmill.Order, topics ...string) outmill.ClaimRequest {
	return outmill.ClaimRequest{
		Owner: owner, Group: readers, Limit: limit, Lease: time.Minute, Order: order,
		Topics: outmill.Topics{Include: topics},
	}
}

func claimed(t *testing.T, store outmill.Queue, req outmill.ClaimRequest) []*outmill.Record {
	t.Helper()
	found, err := store.Claim(t.Context(), req)
	require.NoError(t, err)
	return found
}

func leasesOf(records []*outmill.Record) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	return leases
}

// made returns n records of a topic, with keys, and ids that begin with a name.
func made(topic, name string, n int) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{
			Topic: topic, Key: fmt.Sprintf("key%d", i%7), MessageID: fmt.Sprintf("%s-%d", name, i), Payload: []byte("payload"),
		}
	}
	return records
}

// connectAs is connect with changes of the pool's configuration.
func connectAs(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	change(config)
	db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(t, db) })
	return db
}

// closeSoon closes the pool, which waits for connections that are in use. A test that failed within
// a transaction would wait for ever, and nobody would see that it failed.
func closeSoon(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		db.Close()
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("a connection of the test's pool is still in use")
	}
}

func execute(t *testing.T, db *pgxpool.Pool, statement string, args ...any) {
	t.Helper()
	_, err := db.Exec(t.Context(), statement, args...)
	require.NoError(t, err, statement)
}

func valueOf[T any](t *testing.T, db *pgxpool.Pool, query string, args ...any) T {
	t.Helper()
	var value T
	require.NoError(t, db.QueryRow(t.Context(), query, args...).Scan(&value), query)
	return value
}

// plan is auto_explain's report of one statement.
type plan struct {
	Text string `json:"Query Text"`
	Plan node   `json:"Plan"`
}

type node struct {
	Type       string  `json:"Node Type"`
	Relation   string  `json:"Relation Name"`
	Index      string  `json:"Index Name"`
	Rows       float64 `json:"Actual Rows"`
	Loops      float64 `json:"Actual Loops"`
	Filtered   float64 `json:"Rows Removed by Filter"`
	Rechecked  float64 `json:"Rows Removed by Index Recheck"`
	Joined     float64 `json:"Rows Removed by Join Filter"`
	Hit        int     `json:"Shared Hit Blocks"`
	Read       int     `json:"Shared Read Blocks"`
	Filter     string  `json:"Filter"`
	Cond       string  `json:"Index Cond"`
	JoinFilter string  `json:"Join Filter"`
	Plans      []node  `json:"Plans"`
}

// thrownAway returns the number of rows that the node read and did not return.
func (n node) thrownAway() int { return int(n.Loops * (n.Filtered + n.Rechecked + n.Joined)) }

func (n node) read() int { return int(n.Loops*n.Rows) + n.thrownAway() }

// blocks returns the number of blocks that the node itself read.
func (n node) blocks() int {
	blocks := n.Hit + n.Read
	for _, child := range n.Plans {
		blocks -= child.Hit + child.Read
	}
	return blocks
}

func (n node) String() string {
	return fmt.Sprintf("%s %s %s: %.0f loops of %.1f rows, %d thrown away, %d blocks, index cond %s, filter %s%s",
		n.Type, n.Relation, n.Index, n.Loops, n.Rows, n.thrownAway(), n.blocks(), n.Cond, n.Filter, n.JoinFilter)
}

func (n node) each(fn func(node)) {
	fn(n)
	for _, child := range n.Plans {
		child.each(fn)
	}
}

// plans collects auto_explain's reports to the sessions of a pool.
type plans struct {
	mu  sync.Mutex
	all []string
}

func (p *plans) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = nil
	return all
}

func (p *plans) hear(_ *pgconn.PgConn, notice *pgconn.Notice) {
	if _, text, ok := strings.Cut(notice.Message, "plan:\n"); ok {
		p.mu.Lock()
		p.all = append(p.all, text)
		p.mu.Unlock()
	}
}

// of returns the plans of the statements that fn runs.
func (p *plans) of(t *testing.T, fn func()) []plan {
	t.Helper()
	p.take()
	fn()
	var found []plan
	for _, text := range p.take() {
		var parsed plan
		require.NoError(t, json.Unmarshal([]byte(text), &parsed), text)
		found = append(found, parsed)
	}
	require.NotEmpty(t, found, "auto_explain said nothing")
	return found
}

// explained returns a store on a pool of one connection, and the plans of its statements.
func explained(t *testing.T, url string) (*postgres.Store, *plans) {
	t.Helper()
	told := &plans{}
	db := connectAs(t, url, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.OnNotice = told.hear
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;
SET auto_explain.log_timing = off; SET auto_explain.log_nested_statements = on; SET auto_explain.log_buffers = on;
SET auto_explain.log_format = json; SET client_min_messages = log`,
				pgx.QueryExecModeSimpleProtocol)
			return err
		}
	})
	return newStore(t, db, postgres.Config{NotifyInterval: -1}), told
}

// everything makes each call of a writer, a reader, the janitor and an operator once, on a
// store without records.
func everything(t *testing.T, store *postgres.Store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: readers}))
	joining(t, store)
	written := publishing(t, store)

	owner := outmill.NewOwnerToken()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		found := claimed(t, store, claimOf(owner, 7, order, "orders"))
		require.Len(t, found, 7)
		settleEach(t, store, found)
		written -= 2
	}
	operating(t, store)
	written--
	tidying(t, store)
	left := claimed(t, store, claimOf(owner, 1000, outmill.OrderNone))
	stats, err := store.Stats(ctx, 0)
	require.NoError(t, err)
	require.Len(t, stats, 1)
	require.Equal(t, len(left), stats[0].Leased)
	require.Equal(t, written, stats[0].Leased+stats[0].Pending+stats[0].Dead)
	require.NoError(t, store.Ack(ctx, "", leasesOf(left)))
	_, err = store.DropGroup(ctx, readers)
	require.NoError(t, err)
}

// publishing appends in every way, and returns the resulting number of records for each group.
func publishing(t *testing.T, store *postgres.Store) int {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, store.Append(ctx, made("orders", "own", 20)...))
	require.NoError(t, store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error {
		return store.Append(ctx, made("orders", "inner", 10)...)
	}))
	db := stdlib.OpenDBFromPool(store.Pool())
	defer func() { require.NoError(t, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, store.Append(store.WithTx(ctx, tx), made("orders", "sql", 10)...))
	require.NoError(t, tx.Commit())

	twice := made("orders", "twice", 2)
	twice[0].DedupKey = outmill.NewWorkItemID().String()
	twice[1].DedupKey = twice[0].DedupKey
	twice[0].Metadata = map[string]string{"name": `"quoted" \ and ä`}
	require.NoError(t, store.Append(ctx, twice...))
	require.False(t, twice[0].Duplicate)
	require.True(t, twice[1].Duplicate)
	return 41
}

// settleEach ends the seven leases in seven ways.
func settleEach(t *testing.T, store *postgres.Store, found []*outmill.Record) {
	t.Helper()
	ctx, leases := t.Context(), leasesOf(found)
	held, err := store.Extend(ctx, time.Minute, leases)
	require.NoError(t, err)
	require.Len(t, held, len(leases))
	require.NoError(t, store.Ack(ctx, "", leases[:2]))
	require.NoError(t, store.Abandon(ctx, []outmill.Settlement{{Lease: leases[2], Err: "again"}}))
	require.NoError(t, store.Snooze(ctx, []outmill.Settlement{{Lease: leases[3]}}))
	require.NoError(t, store.Release(ctx, leases[4:5]))
	require.NoError(t, store.Fail(ctx, []outmill.Settlement{{Lease: leases[5], Err: "dead"}, {Lease: leases[6], Err: "dead too", Park: true}}))
}

func operating(t *testing.T, store *postgres.Store) {
	t.Helper()
	ctx := t.Context()
	looking(t, store)
	dead, err := store.List(ctx, outmill.ListQuery{Status: outmill.StatusDead})
	require.NoError(t, err)
	require.NotEmpty(t, dead)
	requeued, err := store.Requeue(ctx, dead[0].ID)
	require.NoError(t, err)
	require.NotZero(t, requeued)
	_, err = store.Delete(ctx, dead[0].ID)
	require.NoError(t, err)
	for _, call := range []func(context.Context, outmill.ListQuery) (roles.Page, error){store.Find, store.RequeueWhere, store.DeleteWhere} {
		_, err := call(ctx, outmill.ListQuery{MessageID: dead[0].MessageID})
		require.NoError(t, err)
	}
}

// looking makes the calls that only read.
func looking(t *testing.T, store *postgres.Store) {
	t.Helper()
	ctx := t.Context()
	stats, err := store.Stats(ctx, 0)
	require.NoError(t, err)
	require.NotEmpty(t, stats)
	_, err = store.Groups(ctx)
	require.NoError(t, err)
	for _, status := range []outmill.Status{"", outmill.StatusPending, outmill.StatusLeased, outmill.StatusProcessed, outmill.StatusDead} {
		found, err := store.List(ctx, outmill.ListQuery{Status: status})
		require.NoError(t, err)
		if len(found) > 0 {
			_, err = store.Get(ctx, found[0].ID)
			require.NoError(t, err)
		}
	}
}

func tidying(t *testing.T, store *postgres.Store) {
	t.Helper()
	for name, call := range map[string]func(context.Context, int) (int, error){
		"reap": store.ReapExpired, "expire": store.ExpireDue, "processed": store.DeleteProcessed, "dedup": store.DeleteDedupKeys,
	} {
		_, err := call(t.Context(), 100)
		require.NoError(t, err, name)
	}
	brief := outmill.Registration{Group: "brief", Worker: "w", TTL: time.Microsecond, Topics: outmill.Topics{Include: []string{"brief"}}}
	for range 2 {
		require.NoError(t, store.RegisterGroup(t.Context(), brief))
	}
	// The readers get them too.
	require.NoError(t, store.Append(t.Context(), made("brief", "brief", 3)...))
	registrations, records, err := store.ExpireRegistrations(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3}, []int{registrations, records})
	for _, r := range claimed(t, store, claimOf(outmill.NewOwnerToken(), 3, outmill.OrderNone, "brief")) {
		_, err := store.Delete(t.Context(), r.ID)
		require.NoError(t, err)
	}
}
