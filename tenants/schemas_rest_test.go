package tenants_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/tenants"
)

// statements counts what a pool sends, and how many of it ask for rest.
type statements struct {
	mu        sync.Mutex
	all, asks int
	others    []string
}

func (s *statements) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	if strings.Contains(text, "resting_of") {
		s.asks++
	} else {
		s.others = append(s.others, text)
	}
}

func (s *statements) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.asks, s.others = 0, 0, nil
}

func (s *statements) sent() (asks int, others []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asks, s.others
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.note(data.SQL)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.note(data.SQL)
}

func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// borough is a set of schemas of one database.
type borough struct {
	*quiet
	n    int
	sent *statements
	pool *pgxpool.Pool
}

// newBorough makes the schemas, in half a second for each.
func newBorough(t *testing.T, n int) *borough {
	t.Helper()
	config, err := pgxpool.ParseConfig(postgrestest.Database(t))
	require.NoError(t, err)
	w := &borough{n: n, sent: &statements{}}
	config.MaxConns = 8
	config.ConnConfig.Tracer = w.sent
	w.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(w.pool.Close)
	for i := range n {
		_, err := w.pool.Exec(t.Context(), fmt.Sprintf("CREATE SCHEMA %s", name(i)))
		require.NoError(t, err)
	}
	return w
}

// open returns a set of the schemas, which has asked each of them once.
func (w *borough) open(t *testing.T, maxIdle time.Duration) *quiet {
	t.Helper()
	set, err := tenants.New(t.Context(), tenants.Config{
		Discovery: postgres.Schemas{Pool: w.pool, Pattern: "t*"}, Ensure: true, MaxIdle: maxIdle, CallTimeout: patient,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	awaitOpen(t, set, w.n)
	q := &quiet{T: t, set: set}
	q.register()
	return q
}

// listening counts the connections that listen.
func (w *borough) listening(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, w.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ~ $1`, listening).Scan(&n))
	return n
}

func TestSet_RestOfSchemas(t *testing.T) {
	t.Parallel()
	n := 20
	if testenv.All() {
		// More than two questions have.
		n = 130
	}
	schemasRest(t, n)
}

func TestSet_RestOfSchemas_Many(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "500 schemas at rest, after 130")
	schemasRest(t, 500)
}

func schemasRest(t *testing.T, n int) {
	t.Helper()
	w := newBorough(t, n)
	q := w.open(t, time.Hour)
	woken := make(chan string, 10*n)
	q.set.Wake(t.Context(), func(topic string) {
		select {
		case woken <- topic:
		default:
		}
	})
	awaitRest := func() {
		t.Helper()
		require.Eventually(t, func() bool { return len(q.claim()) == 0 && q.resting() == n }, 5*time.Minute, 10*time.Millisecond)
	}
	awaitRest()

	t.Run("schemas at rest cost no claim and no upkeep, and share one listening connection", func(t *testing.T) {
		// One for each of them would not go.
		require.Eventually(t, func() bool { return w.listening(t) == 1 }, soon, tick)
		// A store that begins to listen is looked at once more, so wait until all of them listen.
		require.Eventually(t, func() bool {
			w.sent.reset()
			for range 3 {
				require.Empty(t, q.claim())
				q.round()
			}
			_, others := w.sent.sent()
			return len(others) == 0 && q.resting() == n
		}, 5*time.Minute, 10*time.Millisecond, "claims and upkeep go on")
	})

	t.Run("a message that another process commits in one of them wakes this one", func(t *testing.T) {
		other, err := postgres.New(w.pool, postgres.Config{Schema: name(n / 2)}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Close()) }()
		for len(woken) > 0 {
			<-woken
		}
		began := time.Now()
		require.NoError(t, other.Append(t.Context(), &outmill.Record{Topic: topic}))
		var found []*outmill.Record
		for len(found) == 0 {
			select {
			case <-woken:
				found = q.claim()
			case <-time.After(soon):
				require.FailNow(t, "nobody was woken")
			}
		}
		t.Logf("a message in one of %d schemas at rest was claimed after %s", n, time.Since(began))
		require.Equal(t, name(n/2), found[0].Store)
		require.Equal(t, n-1, q.resting())
		require.NoError(t, q.set.Ack(t.Context(), "", leasesOf(found)))
	})

	t.Run("when the listening connection breaks, all of them are looked at again", func(t *testing.T) {
		before := tenants.StirsOf(q.set)
		ended, err := w.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE `+postgrestest.Listening)
		require.NoError(t, err)
		require.EqualValues(t, 1, ended.RowsAffected())
		// The set may ask some of them before it has woken the others, which are at rest again then. So this counts.
		require.Eventually(t, func() bool {
			for name, stirs := range tenants.StirsOf(q.set) {
				if stirs == before[name] {
					return false
				}
			}
			return true
		}, soon, tick)
	})

	t.Run("they are asked with one statement for 64 of them", func(t *testing.T) {
		chunks := (n + 63) / 64
		small := w.open(t, 50*time.Millisecond)
		require.Eventually(t, func() bool { return len(small.claim()) == 0 && small.resting() == n }, 5*time.Minute, 10*time.Millisecond)
		q.awaitRest(n)
		w.sent.reset()
		require.Eventually(t, func() bool { asks, _ := w.sent.sent(); return asks >= 4*chunks }, soon, tick)
		_, others := w.sent.sent()
		others = slices.DeleteFunc(slices.Clone(others), func(query string) bool { return strings.Contains(query, "transaction_read_only") })
		require.Empty(t, others, "but for the proof of a connection after the one that broke")
		require.Equal(t, n, small.resting())
		t.Logf("%d schemas at rest: %d statements every MaxIdle, %.2f a second with the default of 30 s", n, chunks, float64(chunks)/30)
	})
}
