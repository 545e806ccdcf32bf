package postgres_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/postgres"
)

const idle = "idle"

// neglected returns a store with a topic that the group idle does not read. The group readers
// does not have the topic. Its records are in a segment that was left long ago.
func neglected(t *testing.T, records, size int) (store *postgres.Store, url string) {
	t.Helper()
	url = readyDatabase(t, postgres.Config{Lane: postgres.LaneLog})
	store = newStore(t, connect(t, url), postgres.Config{Lane: postgres.LaneLog, NotifyInterval: -1})
	require.NoError(t, store.Ensure(t.Context()))
	for group, topic := range map[string]string{idle: "big", readers: "small"} {
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{topic}}}))
	}
	execute(t, store.Pool(), `INSERT INTO outmill.log (line, segment, id, created_at, size, grp, topic, key, message_id, payload)
SELECT outmill.line_of('idle', 'big'), 0, gen_random_uuid(), now(), $2::integer, 'idle', 'big', 'k' || i % 100, 'm' || i,
convert_to(repeat(md5(i::text), $2::integer / 32), 'UTF8')
FROM generate_series(1, $1::integer) AS i`, records, size)
	execute(t, store.Pool(), `UPDATE outmill.meta SET segment = 1, rotated_at = statement_timestamp() - interval '11 minutes'`)
	return store, url
}

func recordsOf(t *testing.T, store *postgres.Store) int {
	t.Helper()
	return valueOf[int](t, store.Pool(), `SELECT count(*) FROM outmill.records`)
}

func TestStore_LogMaintain(t *testing.T) {
	t.Parallel()

	t.Run("a claim leaves the maintenance of the log to others", func(t *testing.T) {
		t.Parallel()
		store, _ := neglected(t, 100, 100)
		require.NoError(t, store.Append(t.Context(), made("small", "x", 1)...))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "small"))
		require.Len(t, found, 1)
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
		_, err := store.ReapExpired(t.Context(), 100)
		require.NoError(t, err)
		require.Zero(t, recordsOf(t, store))
		require.Equal(t, 100, segmentRows(t, store, 0))
	})

	t.Run("maintenance moves unread records in bounded steps and then frees the segment", func(t *testing.T) {
		t.Parallel()
		const n = 5000
		store, _ := neglected(t, n, 100)
		ctx := t.Context()
		steps := 0
		for before, more := 0, true; more; steps++ {
			var err error
			more, err = store.Maintain(ctx)
			require.NoError(t, err)
			now := recordsOf(t, store)
			require.LessOrEqual(t, now-before, 2000, "records that one call moved")
			before = now
		}
		require.Greater(t, steps, 2)
		require.Equal(t, n, recordsOf(t, store))
		require.Zero(t, segmentRows(t, store, 0))
	})

	t.Run("maintenance reads no payloads", func(t *testing.T) {
		t.Parallel()
		const n, size = 1000, 16_000
		_, url := neglected(t, n, size)
		db, read := counted(t, url)
		store := newStore(t, db, postgres.Config{NotifyInterval: -1})
		for more := true; more; {
			var err error
			more, err = store.Maintain(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, n, recordsOf(t, store))
		require.Less(t, read.Load(), int64(n*size/20))
		found, err := store.Claim(t.Context(),
			outmill.ClaimRequest{Group: idle, Owner: outmill.NewOwnerToken(), Limit: 10, Lease: time.Minute, Order: outmill.OrderKey})
		require.NoError(t, err)
		require.Len(t, found, 10)
		require.Len(t, found[0].Payload, size)
	})

	t.Run("of a fleet one process maintains the log and the others return at once", func(t *testing.T) {
		t.Parallel()
		const processes = 50
		_, url := neglected(t, 10, 100)
		db, told := tracedPool(t, url)
		var fleet sync.WaitGroup
		for range processes {
			store := newStore(t, db, postgres.Config{NotifyInterval: -1})
			fleet.Go(func() {
				_, err := store.Maintain(t.Context())
				if err != nil {
					t.Error(err)
				}
			})
		}
		fleet.Wait()
		require.Equal(t, processes, told.with("SET turn ="))
		// The turn may end before all work is done, and another process that asked later may
		// take it.
		require.Equal(t, 1, told.with("rotated_at > "), "looks at the segments")
	})

	t.Run("a store counts the time to its next turn from the end of the last", func(t *testing.T) {
		t.Parallel()
		store, _ := neglected(t, 5000, 100)
		turns := 0
		for more := true; more; turns++ {
			before := time.Now()
			var err error
			more, err = store.Maintain(t.Context())
			require.NoError(t, err)
			took := valueOf[time.Duration](t, store.Pool(), `SELECT ended_at - $1 FROM outmill.upkeep`, before)
			require.GreaterOrEqual(t, store.LastTurn().Sub(before), took, "turn %d", turns)
		}
		require.Greater(t, turns, 1)
	})

	t.Run("a turn whose process died is taken by another", func(t *testing.T) {
		t.Parallel()
		store, _ := neglected(t, 10, 100)
		ctx := t.Context()
		maintains := func() bool {
			t.Helper()
			other := newStore(t, store.Pool(), postgres.Config{NotifyInterval: -1})
			_, err := other.Maintain(ctx)
			require.NoError(t, err)
			return recordsOf(t, store) > 0
		}
		execute(t, store.Pool(), `UPDATE outmill.upkeep SET turn = 7, until = statement_timestamp() + interval '30 s'`)
		require.False(t, maintains())
		execute(t, store.Pool(), `UPDATE outmill.upkeep SET until = statement_timestamp()`)
		require.True(t, maintains())
	})

	t.Run("a turn that a clock far ahead has taken is taken by another", func(t *testing.T) {
		t.Parallel()
		store, _ := neglected(t, 10, 100)
		execute(t, store.Pool(), `UPDATE outmill.upkeep SET until = statement_timestamp() + interval '1 day',
			ended_at = statement_timestamp() + interval '1 day'`)
		_, err := store.Maintain(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10, recordsOf(t, store))
	})

	t.Run("maintenance ends while another session reads the tables, without an error of the server", func(t *testing.T) {
		t.Parallel()
		writer, url := neglected(t, 1, 100)
		ctx := t.Context()
		db, told := tracedPool(t, url)
		store := newStore(t, db, postgres.Config{NotifyInterval: -1})
		require.NoError(t, store.Evacuate(ctx, 0))
		owner := outmill.NewOwnerToken()
		for range 20 {
			require.NoError(t, writer.Append(ctx, made("small", "x", 1)...))
			require.NoError(t, store.Ack(ctx, "", leasesOf(claimed(t, store, claimOf(owner, 1, outmill.OrderNone, "small")))))
		}
		moveOn(t, writer, 2)
		dump, err := writer.Pool().Begin(ctx)
		require.NoError(t, err)
		defer func() { _ = dump.Rollback(context.WithoutCancel(ctx)) }()
		_, err = dump.Exec(ctx, `LOCK TABLE outmill.log, outmill.batches, outmill.ended IN ACCESS SHARE MODE`)
		require.NoError(t, err)
		require.NoError(t, store.TidyBatches(ctx))
		require.NoError(t, store.TendSegments(ctx))
		done, err := store.Truncate(ctx, 1)
		require.NoError(t, err)
		require.False(t, done)
		require.Empty(t, told.errors())
		require.NoError(t, dump.Rollback(ctx))
		done, err = store.Truncate(ctx, 1)
		require.NoError(t, err)
		require.True(t, done)
	})

	t.Run("batches that are over are dropped by truncation where few lines stay and by deletion where many do", func(t *testing.T) {
		t.Parallel()
		for name, lines := range map[string]int{"few": 100, "many": 1500} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := lined(t, lines)
				ctx := t.Context()
				owner := outmill.NewOwnerToken()
				require.NoError(t, store.Append(ctx, made("orders", "x", 4)...))
				inWork := claimSome(t, store, owner, 2)
				file := valueOf[int64](t, store.Pool(), `SELECT pg_relation_filenode('outmill.batches')::bigint`)
				require.NoError(t, store.TidyBatches(ctx))
				truncated := file != valueOf[int64](t, store.Pool(), `SELECT pg_relation_filenode('outmill.batches')::bigint`)
				require.Equal(t, name == "few", truncated)
				require.NoError(t, store.DeleteBatches(ctx))
				require.Equal(t, lines+1, valueOf[int](t, store.Pool(), `SELECT count(*) FROM outmill.batches`))
				require.Equal(t, 1, valueOf[int](t, store.Pool(), `SELECT count(*) FROM outmill.log_in_work()`))
				require.NoError(t, store.Ack(ctx, "", leasesFor(inWork)))
				rest := claimSome(t, store, owner, 10)
				require.Equal(t, []string{"x-2", "x-3"}, namesOf(rest))
				require.NoError(t, store.Ack(ctx, "", leasesFor(rest)))
				require.Empty(t, claimSome(t, store, owner, 10))
			})
		}
	})

	t.Run("the batch that a truncation keeps of a line has no places", func(t *testing.T) {
		t.Parallel()
		store := lined(t, 10)
		require.NoError(t, store.TidyBatches(t.Context()))
		require.Equal(t, 10, valueOf[int](t, store.Pool(), `SELECT count(*) FROM outmill.batches WHERE n = 2 AND open = 0
			AND positions = '{}' AND keys IS NULL AND done = ''`))
		require.Zero(t, valueOf[int](t, store.Pool(), `SELECT count(*) FROM outmill.ended`))
	})

	t.Run("leases in the log are reaped however many lines there are before them", func(t *testing.T) {
		t.Parallel()
		store := lined(t, 2500)
		ctx := t.Context()
		require.NoError(t, store.Append(ctx, made("orders", "x", 4)...))
		found, err := store.Claim(ctx, outmill.ClaimRequest{Group: readers, Owner: outmill.NewOwnerToken(), Limit: 3, Lease: time.Microsecond})
		require.NoError(t, err)
		require.Len(t, found, 3)
		n, err := store.ReapExpired(ctx, 100)
		require.NoError(t, err)
		require.Equal(t, 3, n)
	})

	t.Run("a segment with many lines is searched in steps and truncated once none is needed", func(t *testing.T) {
		t.Parallel()
		const lines = 2500
		store := logged(t)
		ctx := t.Context()
		execute(t, store.Pool(), `INSERT INTO outmill.log (line, id, created_at, size, segment, grp, topic, key, message_id, payload)
SELECT outmill.line_of('readers', 't' || g), gen_random_uuid(), now(), 100, 0, 'readers', 't' || g, '', 'm' || g, '\x00'
FROM generate_series(1, $1::integer) AS g`, lines)
		execute(t, store.Pool(), `INSERT INTO outmill.batches (line, n, pos, seen, horizon, since, low, owner, token, open, steps, grp, topic,
			done, positions, keys)
SELECT line, 1, pos, pg_current_snapshot(), pg_current_xact_id(), '{-1}', 1, gen_random_uuid(), 1, 0, false, grp, topic, '', '{}',
NULL FROM outmill.log`)
		require.NoError(t, store.Append(ctx, made("orders", "x", 1)...))
		moveOn(t, store, 1)
		done, err := store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.False(t, done, "orders is needed")
		found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone, "orders"))
		require.NoError(t, err)
		require.NoError(t, store.Ack(ctx, "", leasesFor(found)))
		done, err = store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.True(t, done)
	})

	t.Run("no call waits long behind a search of a segment", func(t *testing.T) {
		t.Parallel()
		store := logged(t)
		ctx := t.Context()
		require.NoError(t, store.Append(ctx, made("orders", "x", 3)...))
		require.NoError(t, store.Ack(ctx, "", leasesFor(claimSome(t, store, outmill.NewOwnerToken(), 3))))
		moveOn(t, store, 1)
		// Fail with Park and Delete write like this, and may meet the segment.
		writer, err := store.Pool().Begin(ctx)
		require.NoError(t, err)
		defer func() { _ = writer.Rollback(context.WithoutCancel(ctx)) }()
		_, err = writer.Exec(ctx, `DELETE FROM outmill.log WHERE line = 0`)
		require.NoError(t, err)
		done, err := store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.False(t, done)
		require.NoError(t, writer.Rollback(ctx))
		done, err = store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.True(t, done)
	})

	t.Run("while two transactions pin two segments the third grows and upkeep continues once one ends", func(t *testing.T) {
		testenv.Long(t, "segments with thousands of rows")
		t.Parallel()
		store := logged(t)
		ctx := t.Context()
		owner := outmill.NewOwnerToken()
		read := func() {
			t.Helper()
			for {
				found := claimSome(t, store, owner, 5000)
				if len(found) == 0 {
					return
				}
				require.NoError(t, store.Ack(ctx, "", leasesFor(found)))
			}
		}
		segment := func() int { return valueOf[int](t, store.Pool(), `SELECT segment FROM outmill.meta`) }
		var pins []pgx.Tx
		for range 2 {
			pin, err := store.Pool().Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = pin.Rollback(context.WithoutCancel(ctx)) }()
			require.NoError(t, store.Append(store.WithTx(ctx, pin), made("orders", "pin", 1)...))
			pins = append(pins, pin)
			fill(t, store)
			read()
			require.NoError(t, store.TendSegments(ctx))
		}
		last := segment()
		log := journal.New()
		telling, err := postgres.New(store.Pool(), postgres.Config{NotifyInterval: -1}, log)
		require.NoError(t, err)
		defer func() { require.NoError(t, telling.Close()) }()
		telling.TellOfSegmentsFrom(1 << 20)
		for range 2 {
			fill(t, store)
			read()
			require.NoError(t, store.TendSegments(ctx))
			require.Equal(t, last, segment(), "there is no other segment")
			require.NoError(t, telling.TendSegments(ctx))
			require.Len(t, log.Lines(watermill.ErrorLogLevel), 1, "it says once that the log grows, and why")
		}
		require.NoError(t, pins[0].Rollback(ctx))
		again := newStore(t, store.Pool(), postgres.Config{NotifyInterval: -1}) // a store that no lock was refused yet
		again.HeedSnapshotsFor(0)
		require.NoError(t, again.TendSegments(ctx))
		require.NotEqual(t, last, segment())
	})
}

// counting counts the bytes that come from the server.
type counting struct {
	net.Conn
	read *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// counted returns a pool, and the number of bytes that the server has sent to it.
func counted(t *testing.T, url string) (*pgxpool.Pool, *atomic.Int64) {
	t.Helper()
	read := &atomic.Int64{}
	return connectAs(t, url, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return counting{conn, read}, err
		}
	}), read
}

// traced counts statements by their text, and notes those that failed.
type traced struct {
	mu     sync.Mutex
	all    []string
	failed []string
	timed  []span
}

// span is a single statement.
type span struct {
	statement    string
	began, ended time.Time
}

func (q *traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	q.note(data.SQL, nil)
	return context.WithValue(ctx, span{}, span{statement: data.SQL, began: time.Now()})
}

func (q *traced) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	q.note("", data.Err)
	one, _ := ctx.Value(span{}).(span)
	one.ended = time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timed = append(q.timed, one)
}

// spans are the single statements that contain the text and have ended.
func (q *traced) spans(text string) (found []span) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.timed {
		if strings.Contains(one.statement, text) {
			found = append(found, one)
		}
	}
	return found
}

func (q *traced) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (q *traced) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	q.note(data.SQL, data.Err)
}

func (q *traced) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	q.note("", data.Err)
}

func (q *traced) note(statement string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, statement)
	if err != nil {
		q.failed = append(q.failed, fmt.Sprintf("%s: %v", statement, err))
	}
}

// with counts the statements that contain the text.
func (q *traced) with(text string) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.all {
		if strings.Contains(s, text) {
			n++
		}
	}
	return n
}

func (q *traced) errors() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed
}

func tracedPool(t *testing.T, url string) (*pgxpool.Pool, *traced) {
	t.Helper()
	q := &traced{}
	return connectAs(t, url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = q }), q
}

// lined returns a store with a topic for each line. Each line has two finished batches.
func lined(t *testing.T, lines int) *postgres.Store {
	t.Helper()
	store := logged(t)
	execute(t, store.Pool(), `INSERT INTO outmill.batches (line, n, pos, seen, horizon, since, low, owner, token, open, steps, grp, topic,
		done, positions, keys)
SELECT outmill.line_of('readers', 't' || g), n, 0, pg_current_snapshot(), pg_current_xact_id(), '{-1}', n, gen_random_uuid(), g, 2, false,
'readers', 't' || g, '00', '{1,2}', '{1,1}'
FROM generate_series(1, $1::integer) AS g, generate_series(1, 2) AS n`, lines)
	execute(t, store.Pool(), `INSERT INTO outmill.ended SELECT line, n, token FROM outmill.batches`)
	return store
}

// fill makes the current segment large enough for a rotation.
func fill(t *testing.T, store *postgres.Store) {
	t.Helper()
	execute(t, store.Pool(), `INSERT INTO outmill.log (line, segment, id, created_at, size, grp, topic, key, message_id, payload)
SELECT outmill.line_of('readers', 'orders'), (SELECT segment
FROM outmill.meta), gen_random_uuid(), now(), 7000, 'readers', 'orders', '', 'm' || i, decode(string_agg(md5(i::text || j), ''), 'hex')
FROM generate_series(1, 800) AS i, generate_series(1, 440) AS j GROUP BY i`)
	execute(t, store.Pool(), `UPDATE outmill.meta SET rotated_at = rotated_at - interval '1 hour'`)
}

func TestStore_LogMaintain_Serial(t *testing.T) {
	// The test is not parallel, because it measures the heap of the process.
	t.Run("a group that does not read hundreds of thousands of rows costs others and the worker hardly anything", func(t *testing.T) {
		testenv.Long(t, "an unread group with hundreds of thousands of rows")
		const n = 200_000
		store, url := neglected(t, n, 1024)
		ctx := t.Context()
		owner := outmill.NewOwnerToken()
		claims := func(until func() bool) time.Duration {
			var took []time.Duration
			for i := 0; i < 100 || !until(); i++ {
				require.NoError(t, store.Append(ctx, made("small", fmt.Sprint(i), 1)...))
				began := time.Now()
				found := claimed(t, store, claimOf(owner, 10, outmill.OrderKey, "small"))
				took = append(took, time.Since(began))
				require.NotEmpty(t, found)
				require.NoError(t, store.Ack(ctx, "", leasesOf(found)))
			}
			slices.Sort(took)
			return took[len(took)/2]
		}
		before := claims(func() bool { return true })
		maintaining := newStore(t, connect(t, url), postgres.Config{NotifyInterval: -1})
		var heap, most runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&heap)
		done := make(chan error, 1)
		var over atomic.Bool
		go func() {
			defer over.Store(true)
			for more := true; more; {
				began := time.Now()
				var err error
				if more, err = maintaining.Maintain(ctx); err != nil {
					done <- err
					return
				}
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				most.HeapAlloc = max(most.HeapAlloc, now.HeapAlloc)
				_ = pause(ctx, 4*time.Since(began)) // as a worker does
			}
			done <- nil
		}()
		during := claims(over.Load)
		require.NoError(t, <-done)
		t.Logf("a claim of another group took %s, and %s while %d rows moved; the heap grew by %d MiB at most", before, during, n,
			(int64(most.HeapAlloc)-int64(heap.HeapAlloc))>>20)
		require.Equal(t, n, recordsOf(t, store))
		require.Less(t, during, 3*before)
		require.Less(t, int64(most.HeapAlloc)-int64(heap.HeapAlloc), int64(16<<20))
	})
}
