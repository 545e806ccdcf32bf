package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/storekit"
)

const readers = "readers"

// database is shared by tests that run at the same time. free are tables in it that tests have
// used and emptied: to make tables, and to fill the caches of the sessions, takes longer than
// most tests.
type database struct {
	mu    sync.Mutex
	users int
	url   string
	free  []string
}

var shared database

// sharedURL is the URL of the shared database, which is dropped after the last test that uses it.
func sharedURL(t *testing.T) string {
	t.Helper()
	server := sqlservertest.Server(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.users == 0 {
		name := "outmill_" + unique("")
		onServer(t, server, "CREATE DATABASE "+name)
		onServer(t, server, "ALTER DATABASE "+name+" SET READ_COMMITTED_SNAPSHOT ON")
		shared.url = withParameters(t, server, "database="+name)
	}
	shared.users++
	t.Cleanup(func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if shared.users--; shared.users == 0 {
			_, query, _ := strings.Cut(shared.url, "database=")
			name, _, _ := strings.Cut(query, "&")
			onServer(t, server, "DROP DATABASE "+name)
			shared.free = nil
		}
	})
	return shared.url
}

func onServer(t *testing.T, server, statement string) {
	t.Helper()
	db, err := sql.Open("sqlserver", server)
	require.NoError(t, err)
	_, err = db.ExecContext(context.WithoutCancel(t.Context()), statement)
	require.NoError(t, err, statement)
	require.NoError(t, db.Close())
}

// withParameters returns the URL with further parameters, each name=value.
func withParameters(t *testing.T, text string, parameters ...string) string {
	t.Helper()
	parsed, err := url.Parse(text)
	require.NoError(t, err)
	query := parsed.Query()
	for _, parameter := range parameters {
		name, value, _ := strings.Cut(parameter, "=")
		query.Set(name, value)
	}
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// unique returns a name that no other test has.
func unique(prefix string) string {
	return prefix + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "")
}

// sharedPool is a pool on the shared database.
func sharedPool(t *testing.T) *sql.DB {
	t.Helper()
	return connect(t, sharedURL(t))
}

// ensured is a store with empty tables of its own in the shared database.
func ensured(t *testing.T, config sqlserver.Config) (store *sqlserver.Store, table string) {
	t.Helper()
	db := sharedPool(t)
	shared.mu.Lock()
	if n := len(shared.free); n > 0 {
		config.Table, shared.free = shared.free[n-1], shared.free[:n-1]
	}
	shared.mu.Unlock()
	made := config.Table != ""
	if !made {
		config.Table = unique("T")
	}
	store = newStore(t, db, config)
	if !made {
		require.NoError(t, store.Ensure(t.Context()))
	}
	t.Cleanup(func() { giveBack(t, db, config.Table) })
	return store, config.Table
}

func giveBack(t *testing.T, db *sql.DB, table string) {
	t.Helper()
	wipe(t, db, table)
	setClock(t, db, table, 0)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.free = append(shared.free, table)
}

func one(name string) *outmill.Record { return &outmill.Record{Topic: "orders", MessageID: name} }

func listed(t *testing.T, store outmill.Inspector) []string {
	t.Helper()
	found, err := store.List(t.Context(), outmill.ListQuery{Limit: 10_000})
	require.NoError(t, err)
	names := []string{}
	for _, r := range found {
		names = append(names, r.MessageID)
	}
	slices.Sort(names)
	return names
}

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

// made makes n records of a topic, with keys and ids for a name.
func made(topic, name string, n int) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{
			Topic: topic, Key: fmt.Sprintf("key%d", i%7), MessageID: fmt.Sprintf("%s-%d", name, i), Payload: []byte("payload"),
		}
	}
	return records
}

func execute(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err, statement)
}

func valueOf[T any](t *testing.T, db *sql.DB, query string, args ...any) T {
	t.Helper()
	var value T
	require.NoError(t, db.QueryRowContext(t.Context(), query, args...).Scan(&value), query)
	return value
}

// everything makes each call of a writer, a reader, the janitor and an operator once, on an empty
// store.
func everything(t *testing.T, store *sqlserver.Store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: readers}))
	joining(t, store)
	publishing(t, store)
	owner := outmill.NewOwnerToken()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		found := claimed(t, store, claimOf(owner, 7, order, "orders"))
		require.Len(t, found, 7)
		settleEach(t, store, found)
	}
	operating(t, store)
	pausing(t, store)
	handling(t, store)
	tidying(t, store)
	require.NoError(t, store.Ack(ctx, "", leasesOf(claimed(t, store, claimOf(owner, 1000, outmill.OrderNone)))))
	_, err := store.DropGroup(ctx, readers)
	require.NoError(t, err)
}

// publishing appends in every way.
func publishing(t *testing.T, store *sqlserver.Store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, store.Append(ctx, made("orders", "own", 20)...))
	require.NoError(t, store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		return store.Append(ctx, made("orders", "inner", 10)...)
	}))
	twice := made("orders", "twice", 2)
	twice[0].DedupKey = unique("")
	twice[1].DedupKey = twice[0].DedupKey
	require.NoError(t, store.Append(ctx, twice...))
	require.False(t, twice[0].Duplicate)
	require.True(t, twice[1].Duplicate)
}

// settleEach ends the seven leases in seven ways.
func settleEach(t *testing.T, store *sqlserver.Store, found []*outmill.Record) {
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

func operating(t *testing.T, store *sqlserver.Store) {
	t.Helper()
	ctx := t.Context()
	stats, err := store.Stats(ctx, 0)
	require.NoError(t, err)
	require.NotEmpty(t, stats)
	_, err = store.Groups(ctx)
	require.NoError(t, err)
	for _, status := range []outmill.Status{"", outmill.StatusPending, outmill.StatusLeased, outmill.StatusProcessed} {
		_, err := store.List(ctx, outmill.ListQuery{Status: status})
		require.NoError(t, err)
	}
	dead, err := store.List(ctx, outmill.ListQuery{Status: outmill.StatusDead})
	require.NoError(t, err)
	require.NotEmpty(t, dead)
	_, err = store.Get(ctx, dead[0].ID)
	require.NoError(t, err)
	page, err := store.DeadLetters(ctx, outmill.ListQuery{})
	require.NoError(t, err)
	require.NotEmpty(t, page.Letters)
	_, err = store.Edit(ctx, dead[0].ID, roles.Edit{Seen: storekit.FingerprintOf(dead[0]), Payload: []byte("edited")})
	require.NoError(t, err)
	requeued, err := store.Requeue(ctx, dead[0].ID)
	require.NoError(t, err)
	require.NotZero(t, requeued)
	if len(dead) > 1 {
		skipped, err := store.Skip(ctx, dead[1].ID)
		if err != nil { // requeued with the key of the first
			require.ErrorIs(t, err, roles.ErrNotDead)
		} else {
			require.True(t, skipped.Done)
		}
	}
	audited, err := store.Audited(ctx, roles.AuditQuery{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(audited.Entries), 2)
	deleted, err := store.Delete(ctx, dead[0].ID)
	require.NoError(t, err)
	require.Equal(t, 1, deleted)
}

// pausing makes claims set records aside, and bring them back.
func pausing(t *testing.T, store *sqlserver.Store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "paused", Key: "k", TenantID: "acme"}))
	scope := roles.PauseScope{TenantID: "acme"}
	require.NoError(t, store.Pause(ctx, scope, "ann", "maintenance"))
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		require.Empty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 7, order, "paused")))
	}
	paused, err := store.Paused(ctx)
	require.NoError(t, err)
	require.Len(t, paused, 1)
	ended, err := store.Resume(ctx, scope)
	require.NoError(t, err)
	require.True(t, ended)
	found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 7, outmill.OrderNone, "paused"))
	require.Len(t, found, 1)
	require.NoError(t, store.Ack(ctx, "", leasesOf(found)))
}

func tidying(t *testing.T, store *sqlserver.Store) {
	t.Helper()
	for name, call := range map[string]func(context.Context, int) (int, error){
		"reap": store.ReapExpired, "expire": store.ExpireDue, "processed": store.DeleteProcessed, "dedup": store.DeleteDedupKeys,
		"joins": store.DeleteJoins,
		"notes": store.DeleteNotes, "audit": store.DeleteOldAudit,
	} {
		_, err := call(t.Context(), 100)
		require.NoError(t, err, name)
	}
	_, err := store.Maintain(t.Context())
	require.NoError(t, err)
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

// handling makes, in one transaction, the calls of a handler with an inbox and a saga.
func handling(t *testing.T, store *sqlserver.Store) {
	t.Helper()
	handled := made("handled", "handled", 1)
	require.NoError(t, store.Append(t.Context(), handled...))
	found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "handled"))
	require.Len(t, found, 1)
	note := roles.Note{Consumer: "billing", Key: unique(""), Retention: time.Microsecond, Lease: found[0].Lease()}
	require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error {
		duplicate, err := store.PutNote(ctx, note, time.Second)
		require.NoError(t, err)
		require.False(t, duplicate)
		keepSaga(ctx, t, store, note.Key)
		return nil
	}))
	noted, err := store.HasNote(t.Context(), note.Consumer, note.Key)
	require.NoError(t, err)
	require.True(t, noted)
	require.NoError(t, store.Ack(t.Context(), "worker", leasesOf(found)))
	deleted, err := store.DeleteFinishedSagas(t.Context(), "order", 0, 100)
	require.NoError(t, err)
	require.Equal(t, 1, deleted)
}

// joining makes every call of joins, with a group that reads all topics.
func joining(t *testing.T, store *sqlserver.Store) {
	t.Helper()
	ctx := t.Context()
	join := &roles.Join{ExpectedSteps: 4, Metadata: map[string]string{"a": "b"}, Timeout: time.Hour}
	step := func(payload string) *outmill.Record {
		r := made("steps", payload, 1)[0]
		r.Joins = []outmill.JoinID{join.ID}
		return r
	}
	require.NoError(t, store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		if err := store.StartJoin(ctx, join); err != nil {
			return err
		}
		return store.Append(ctx, step("acked"), step("dead"), step("completed"), step("failed"))
	}))
	require.ErrorIs(t, store.Append(ctx, step("too many")), roles.ErrTooManySteps)
	found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 4, outmill.OrderNone, "steps"))
	require.Len(t, found, 4)
	require.NoError(t, store.Ack(ctx, "", leasesOf(found[:1])))
	require.NoError(t, store.Fail(ctx, []outmill.Settlement{{Lease: found[1].Lease()}}))
	require.NoError(t, store.ReportCompleted(ctx, join.ID, found[2].ID))
	require.NoError(t, store.ReportFailed(ctx, join.ID, found[3].ID))
	steps, err := store.ListSteps(ctx, join.ID, outmill.WorkItemID{}, 0)
	require.NoError(t, err)
	require.Len(t, steps, 4)
	ended, err := store.FinishJoin(ctx, join.ID,
		roles.FinishRequest{FailIfAnyStepFailed: true, Then: func(roles.Join) (*outmill.Record, error) {
			return made("steps", "next", 1)[0], nil
		}})
	require.NoError(t, err)
	require.Equal(t, roles.JoinFailed, ended.Join.Status)

	open := &roles.Join{Unsealed: true}
	require.NoError(t, store.StartJoin(ctx, open))
	if err := store.AttachStep(ctx, open.ID, found[1].ID); err != nil {
		require.ErrorIs(t, err, roles.ErrUnknownMessage, "a store that does not retain what is processed")
	}
	require.NoError(t, store.SealJoin(ctx, open.ID, 1))
	require.NoError(t, store.CancelJoin(ctx, open.ID, "enough"))
	for _, r := range append(found[1:], claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone, "steps"))...) {
		_, err := store.Delete(ctx, r.ID)
		require.NoError(t, err)
	}
}

// serverOf is the URL of the database that a pool is on.
func serverOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	return withParameters(t, sqlservertest.Server(t), "database="+valueOf[string](t, db, "SELECT DB_NAME()"))
}
