package janitor_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/clock"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

const (
	// soon is long enough for every expected event, even on a busy machine.
	soon  = 2 * time.Minute
	topic = "orders"
	// kept is longer than any test, and every retention of the rig's store.
	kept = time.Hour
)

// rig is a store in a file, with a group that reads the topic.
type rig struct {
	*testing.T
	store *sqlite.Store
	file  string
	clock clock.Clock
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, file: "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"}
	r.store = r.open()
	require.NoError(t, r.store.Ensure(t.Context()))
	require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Topics: outmill.Topics{Include: []string{topic}}}))
	return r
}

// open opens the rig's database once more, as another process would.
func (r *rig) open() *sqlite.Store {
	r.Helper()
	config := sqlite.Config{BusyTimeout: soon, Retain: kept, RetainJoins: kept, RetainAudit: kept, DedupWindow: kept}
	store, err := sqlite.Open(clock.With(r.Context(), &r.clock), r.file, config, nil)
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, store.Close()) })
	return store
}

// exec changes the store's tables.
func (r *rig) exec(query string, args ...any) {
	r.Helper()
	_, err := r.store.DB().ExecContext(r.Context(), query, args...)
	require.NoError(r, err)
}

// entries counts the entries of a kind, such as those of dedup keys.
func (r *rig) entries(kind string) (n int) {
	r.Helper()
	require.NoError(r, r.store.DB().QueryRowContext(r.Context(), `SELECT count(*) FROM outmill_entries WHERE kind = ?`, kind).Scan(&n))
	return n
}

func (r *rig) append(records ...*outmill.Record) {
	r.Helper()
	require.NoError(r, r.store.Append(r.Context(), records...))
}

func (r *rig) claim() []*outmill.Record {
	r.Helper()
	found, err := r.store.Claim(r.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 1000, Lease: kept})
	require.NoError(r, err)
	return found
}

func (r *rig) ack(records ...*outmill.Record) {
	r.Helper()
	leases := make([]outmill.Lease, len(records))
	for i, rec := range records {
		leases[i] = rec.Lease()
	}
	require.NoError(r, r.store.Ack(r.Context(), "", leases))
}

// leftovers puts one thing of each kind of work in the store, none past its time.
func (r *rig) leftovers() {
	r.Helper()
	ctx := r.Context()
	r.append(&outmill.Record{Topic: topic, MessageID: "processed"})
	r.ack(r.claim()...)
	deleted := &outmill.Record{Topic: topic, MessageID: "deleted"}
	r.append(deleted)
	_, err := r.store.Delete(ctx, deleted.ID)
	require.NoError(r, err)
	r.append(&outmill.Record{Topic: topic, MessageID: "leased"})
	r.claim()
	r.append(&outmill.Record{Topic: topic, MessageID: "expires", DedupKey: "once", ExpiresAt: time.Now().Add(kept)})

	replies := outmill.Topics{Include: []string{"replies"}}
	require.NoError(r, r.store.RegisterGroup(ctx, outmill.Registration{Group: "replies", Topics: replies, TTL: kept}))
	r.append(&outmill.Record{Topic: "replies", MessageID: "unread"})

	join := roles.Join{ExpectedSteps: 1}
	require.NoError(r, r.store.StartJoin(ctx, &join))
	require.NoError(r, r.store.CancelJoin(ctx, join.ID, "not needed"))

	_, err = r.store.PutNote(ctx, roles.Note{Consumer: "c", Key: "k", Retention: kept}, 0)
	require.NoError(r, err)

	saga := roles.Saga{Type: "order", Correlation: "1"}
	require.NoError(r, r.store.InsertSaga(ctx, &saga, &struct{}{}, roles.SagaOptions{}))
	saga.Finished = true
	require.NoError(r, r.store.UpdateSaga(ctx, &saga, &struct{}{}, roles.SagaOptions{}))
	require.NoError(r, r.store.RetainSaga(ctx, &saga, kept, roles.SagaOptions{}))
}

// elapse moves the clock of the rig's stores forward by d.
func (r *rig) elapse(d time.Duration) { r.clock.Elapse(d) }

// backlog makes n notes that are past their retention, which is the cheapest kind of work to make.
func (r *rig) backlog(n int) {
	r.Helper()
	r.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO outmill_entries (kind, key, at, made_at, value) SELECT 'note', '1:ckey ' || i, 1, 1, '' FROM n`, n)
}

func newJanitor(t *testing.T, store outmill.Queue, cfg janitor.Config) *janitor.Janitor {
	t.Helper()
	j, err := janitor.New(store, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, j.Close()) })
	return j
}

// runs runs the janitor, and returns a function that ends it and waits for the end.
func runs(t *testing.T, j *janitor.Janitor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}
