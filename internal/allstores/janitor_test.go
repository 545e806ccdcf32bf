package allstores

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/janitor"
	outmillmongo "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

// instant is a retention that has passed when the test looks.
const instant = time.Millisecond

// forgetful has stores that keep nothing for longer than an instant.
var forgetful = map[string]func(t *testing.T) outmill.Store{
	"SQLite": func(t *testing.T) outmill.Store {
		file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"
		config := sqlite.Config{
			BusyTimeout: time.Minute, Retain: instant, RetainJoins: instant, DedupWindow: instant, RetainAudit: instant,
		}
		store, err := sqlite.Open(t.Context(), file, config, nil)
		require.NoError(t, err)
		return store
	},
	"PostgreSQL": forgetfulPostgreSQL,
	"MongoDB": func(t *testing.T) outmill.Store {
		db := mongotest.Database(t)
		config := outmillmongo.Config{
			Database: db.Name(), Retain: instant, RetainJoins: instant, DedupWindow: instant, RetainAudit: instant,
		}
		store, err := outmillmongo.New(db.Client(), config, nil)
		require.NoError(t, err)
		return store
	},
}

func forgetfulPostgreSQL(t *testing.T) outmill.Store {
	pool := postgresPool(t, postgrestest.Database(t))
	config := postgres.Config{Retain: instant, RetainJoins: instant, DedupWindow: instant, RetainAudit: instant}
	store, err := postgres.New(pool, config, nil)
	require.NoError(t, err)
	return store
}

func postgresPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// leftovers puts one thing of each kind of work in the store.
func leftovers(t *testing.T, store outmill.Store) {
	t.Helper()
	ctx := t.Context()
	register := func(topic, group string, ttl time.Duration) {
		topics := outmill.Topics{Include: []string{topic}}
		require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: topics, TTL: ttl}))
	}
	claim := func(lease time.Duration) []*outmill.Record {
		found, err := store.Claim(ctx, outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 10, Lease: lease})
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found
	}
	deleted := &outmill.Record{Topic: "orders", MessageID: "deleted"}
	require.NoError(t, store.Append(ctx, deleted))
	_, err := store.Delete(ctx, deleted.ID)
	require.NoError(t, err)
	register("orders", "", 0)
	require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "orders", MessageID: "processed", DedupKey: "once"}))
	require.NoError(t, store.Ack(ctx, "", []outmill.Lease{claim(time.Hour)[0].Lease()}))
	require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "orders", MessageID: "leased"}))
	claim(instant)
	require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "orders", MessageID: "expires", ExpiresAt: time.Now().Add(instant)}))
	register("replies", "replies", time.Second)
	require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "replies", MessageID: "unread"}))
	register("replies", "replies", instant)

	join := roles.Join{ExpectedSteps: 1}
	joins, ok := outmill.As[roles.Joins](store)
	require.True(t, ok)
	require.NoError(t, joins.StartJoin(ctx, &join))
	require.NoError(t, joins.CancelJoin(ctx, join.ID, "not needed"))

	inbox, ok := outmill.As[roles.Inbox](store)
	require.True(t, ok)
	for key, retention := range map[string]time.Duration{"over": instant, "kept": time.Hour} {
		_, err := inbox.PutNote(ctx, roles.Note{Consumer: "c", Key: key, Retention: retention}, 0)
		require.NoError(t, err)
	}

	sagas, ok := outmill.As[roles.Sagas](store)
	require.True(t, ok)
	for correlation, d := range map[string]time.Duration{"over": instant, "kept": time.Hour} {
		saga := roles.Saga{Type: "order", Correlation: correlation}
		require.NoError(t, sagas.InsertSaga(ctx, &saga, &struct{}{}, roles.SagaOptions{}))
		saga.Finished = true
		require.NoError(t, sagas.UpdateSaga(ctx, &saga, &struct{}{}, roles.SagaOptions{}))
		require.NoError(t, sagas.RetainSaga(ctx, &saga, d, roles.SagaOptions{}))
	}
}

// oneOfEach puts a note, a dedup key and a finished saga in the store, which need not be kept.
func oneOfEach(t *testing.T, store *postgres.Store) {
	t.Helper()
	ctx := t.Context()
	_, err := store.PutNote(ctx, roles.Note{Consumer: "c", Key: "over", Retention: instant}, 0)
	require.NoError(t, err)
	record := &outmill.Record{Topic: "orders", DedupKey: "once"}
	require.NoError(t, store.Append(ctx, record))
	_, err = store.Delete(ctx, record.ID)
	require.NoError(t, err)
	saga := roles.Saga{Type: "order", Correlation: "over"}
	require.NoError(t, store.InsertSaga(ctx, &saga, &struct{}{}, roles.SagaOptions{}))
	saga.Finished = true
	require.NoError(t, store.UpdateSaga(ctx, &saga, &struct{}{}, roles.SagaOptions{}))
	require.NoError(t, store.RetainSaga(ctx, &saga, instant, roles.SagaOptions{}))
}

// audits is how many entries the leftovers have in the audit of the store.
func audits(store outmill.Store) int {
	if _, ok := outmill.As[roles.Repairs](store); ok {
		return 1
	}
	return 0
}

func sum(a, b janitor.Report) janitor.Report {
	return janitor.Report{
		Reaped: a.Reaped + b.Reaped, Expired: a.Expired + b.Expired, Registrations: a.Registrations + b.Registrations,
		Unread: a.Unread + b.Unread, Processed: a.Processed + b.Processed, Joins: a.Joins + b.Joins, Notes: a.Notes + b.Notes,
		Sagas: a.Sagas + b.Sagas, Audit: a.Audit + b.Audit, DedupKeys: a.DedupKeys + b.DedupKeys,
	}
}

func TestJanitor(t *testing.T) {
	t.Parallel()

	t.Run("a janitor does each kind of work once, and leaves what is to be kept", func(t *testing.T) {
		t.Parallel()
		for name, open := range forgetful {
			t.Run("on "+name, func(t *testing.T) {
				t.Parallel()
				store := open(t)
				t.Cleanup(func() { require.NoError(t, store.Close()) })
				require.NoError(t, store.Ensure(t.Context()))
				leftovers(t, store)
				j, err := janitor.New(store, janitor.Config{}, nil)
				require.NoError(t, err)
				var done janitor.Report
				require.Eventually(t, func() bool {
					report, err := j.RunOnce(t.Context())
					require.NoError(t, err)
					done = sum(done, report)
					return done.Total() == 9+audits(store)
				}, patience, time.Millisecond)
				require.Equal(t, janitor.Report{
					Reaped: 1, Expired: 1, Registrations: 1, Unread: 1, Processed: 1, Joins: 1, Notes: 1, Sagas: 1, DedupKeys: 1,
					Audit: audits(store),
				}, done)
				left, err := store.List(t.Context(), outmill.ListQuery{Content: true})
				require.NoError(t, err)
				require.Len(t, left, 2)
				require.Equal(t, outmill.StatusPending, left[0].Status, "its lease has ended")
				require.Equal(t, outmill.StatusDead, left[1].Status, "it expired")
				noted, err := store.(roles.Inbox).HasNote(t.Context(), "c", "kept")
				require.NoError(t, err)
				require.True(t, noted)
				_, err = store.(roles.Sagas).FindSaga(t.Context(), "order", "kept", &struct{}{}, roles.SagaOptions{})
				require.NoError(t, err)
			})
		}
	})

	t.Run("ten janitors share a backlog: each thing is deleted once, with about as many calls as one of them needs", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		pool := postgresPool(t, url)
		first, err := postgres.New(pool, postgres.Config{DedupWindow: instant}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, first.Close()) })
		require.NoError(t, first.Ensure(t.Context()))
		const notes, keys, sagas, batch, fleet = 80_000, 80_000, 40_000, 1000, 10
		oneOfEach(t, first)
		for kind, n := range map[string]int{"note": notes, "dedup": keys, "saga": sagas} {
			_, err := pool.Exec(t.Context(), `INSERT INTO outmill.entries (kind, key, at, made_at, value)
				SELECT kind, key || i, at, made_at, value FROM outmill.entries, generate_series(2, $2::int) AS i WHERE kind = $1`, kind, n)
			require.NoError(t, err)
		}
		var calls counter
		var done janitor.Report
		var mu sync.Mutex
		var working sync.WaitGroup
		began := time.Now()
		for range fleet {
			store, err := postgres.New(postgresPool(t, url), postgres.Config{}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			j, err := janitor.New(&countedStore{store, &calls}, janitor.Config{BatchSize: batch, Share: 1}, nil)
			require.NoError(t, err)
			working.Go(func() {
				report, err := j.RunOnce(t.Context())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				done = sum(done, report)
			})
		}
		working.Wait()
		require.Equal(t, janitor.Report{Notes: notes, DedupKeys: keys, Sagas: sagas}, done)
		most := (notes+keys+sagas)/batch + 3*fleet
		t.Logf("%d calls for %d batches, in %s", calls.Load(), (notes+keys+sagas)/batch, time.Since(began))
		require.LessOrEqual(t, calls.Load(), int64(most), "each janitor finds each kind of work done once")
	})
}

// longestWait is what a writer may wait for a batch of a janitor, even on a busy machine. It may wait
// longer where everything is slower: a writer that waits for the whole backlog waits for all of the time.
const longestWait = 10 * time.Second

func TestJanitor_Writers(t *testing.T) {
	t.Parallel()

	t.Run("writers and workers go on while a janitor deletes a backlog", func(t *testing.T) {
		t.Parallel()
		const records, batch = 3000, 100
		for name, open := range forgetful {
			t.Run("on "+name, func(t *testing.T) {
				t.Parallel()
				store := open(t)
				t.Cleanup(func() { require.NoError(t, store.Close()) })
				require.NoError(t, store.Ensure(t.Context()))
				processedBacklog(t, store, records)
				j, err := janitor.New(store, janitor.Config{BatchSize: batch}, nil)
				require.NoError(t, err)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan janitor.Report, 1)
				began := time.Now()
				go func() {
					defer stop()
					report, err := j.RunOnce(t.Context())
					if err != nil {
						t.Error(err)
					}
					ended <- report
				}()
				written, slowest := 0, time.Duration(0)
				inTime := func(call func() error) {
					began := time.Now()
					require.NoError(t, call())
					slowest = max(slowest, time.Since(began))
				}
				for ctx.Err() == nil {
					rec := &outmill.Record{Topic: "orders", DedupKey: fmt.Sprint("new ", written)}
					inTime(func() error { return store.Append(t.Context(), rec) })
					var found []*outmill.Record
					inTime(func() (err error) {
						found, err = store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 1, Lease: time.Hour})
						return err
					})
					require.Len(t, found, 1)
					inTime(func() error { return store.Ack(t.Context(), "", []outmill.Lease{found[0].Lease()}) })
					written++
				}
				report, took := <-ended, time.Since(began)
				t.Logf("%d records and %d dedup keys deleted in %s; %d records written and handled in this time, the slowest call took %s",
					report.Processed, report.DedupKeys, took.Round(time.Millisecond), written, slowest.Round(time.Microsecond))
				if name == "MongoDB" {
					// The server deletes by itself, too.
					require.Positive(t, report.Processed+report.DedupKeys)
				} else {
					require.GreaterOrEqual(t, report.Processed, records)
					require.GreaterOrEqual(t, report.DedupKeys, records)
				}
				require.Less(t, slowest, max(longestWait, took/2))
				require.Greater(t, written, 5)
			})
		}
	})
}

// processedBacklog puts processed records with dedup keys in a store that keeps both for an instant.
func processedBacklog(t *testing.T, store outmill.Store, n int) {
	t.Helper()
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders", DedupKey: fmt.Sprint("old ", i)}
	}
	require.NoError(t, store.Append(t.Context(), records...))
	for left := n; left > 0; {
		found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 1000, Lease: time.Hour})
		require.NoError(t, err)
		require.NotEmpty(t, found)
		leases := make([]outmill.Lease, len(found))
		for i, rec := range found {
			leases[i] = rec.Lease()
		}
		require.NoError(t, store.Ack(t.Context(), "", leases))
		left -= len(found)
	}
}

func TestJanitor_MongoDB(t *testing.T) {
	t.Parallel()

	t.Run("janitors that begin at the same time leave nothing, although each of them gets only a part of what it finds", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		const keys, fleet = 5000, 10
		var stores []*outmillmongo.Store
		for range fleet {
			store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Database: db.Name()}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			stores = append(stores, store)
		}
		require.NoError(t, stores[0].Ensure(t.Context()))
		entries := db.Collection("outmill_entries")
		for range 5 {
			documents := make([]any, keys)
			for i := range documents {
				documents[i] = bson.D{{Key: "_id", Value: bson.D{{Key: "kind", Value: "dedup"}, {Key: "key", Value: fmt.Sprint(i)}}},
					{Key: "at", Value: time.Now().Add(-time.Hour).UnixMicro()}, {Key: "made", Value: int64(0)}, {Key: "value", Value: ""}}
			}
			_, err := entries.InsertMany(t.Context(), documents)
			require.NoError(t, err)
			var deleted atomic.Int64
			var working sync.WaitGroup
			for _, store := range stores {
				j, err := janitor.New(store, janitor.Config{Share: 1}, nil)
				require.NoError(t, err)
				working.Go(func() {
					report, err := j.RunOnce(t.Context())
					if err != nil {
						t.Error(err)
					}
					deleted.Add(int64(report.DedupKeys))
				})
			}
			working.Wait()
			require.LessOrEqual(t, deleted.Load(), int64(keys), "no key is counted twice")
			left, err := entries.CountDocuments(t.Context(), bson.D{{Key: "_id.kind", Value: "dedup"}})
			require.NoError(t, err)
			require.Zero(t, left)
		}
	})
}

type counter struct{ atomic.Int64 }

// countedStore counts the calls that delete what is past its retention.
type countedStore struct {
	*postgres.Store
	calls *counter
}

func (c *countedStore) DeleteNotes(ctx context.Context, limit int) (int, error) {
	c.calls.Add(1)
	return c.Store.DeleteNotes(ctx, limit)
}

func (c *countedStore) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	c.calls.Add(1)
	return c.Store.DeleteDedupKeys(ctx, limit)
}

func (c *countedStore) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	c.calls.Add(1)
	return c.Store.DeleteOldSagas(ctx, limit)
}
