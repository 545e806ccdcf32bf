package postgres_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

// listener receives the notifications of the database's stores.
func listener(t *testing.T, db *pgxpool.Pool, store *postgres.Store) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	told := testenv.Hints(ctx, store)
	require.Eventually(t, func() bool {
		return valueOf[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE `+postgrestest.Listening) > 0
	}, patience, 5*time.Millisecond)
	<-told
	statement := valueOf[string](t, db, `SELECT query FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'
		LIMIT 1`)
	conn, err := pgx.Connect(ctx, db.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(ctx, statement)
	require.NoError(t, err)
	return conn
}

func hears(t *testing.T, conn *pgx.Conn, within time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_, err := conn.WaitForNotification(ctx)
	return err == nil
}

func TestStore_RacesWake(t *testing.T) {
	t.Parallel()

	t.Run("a store that closes sends the notification that it owes", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		heard := listener(t, r.db, r.store.Store)
		config := r.store.config
		config.NotifyInterval = time.Hour
		store := newStore(t, r.db, config)
		require.NoError(t, store.Append(t.Context(), made("orders", "first", 1)...))
		require.True(t, hears(t, heard, patience))
		require.NoError(t, store.Append(t.Context(), made("orders", "second", 1)...))
		require.NoError(t, store.Close())
		require.True(t, hears(t, heard, 5*time.Second))
	})

	t.Run("notifications keep their interval however much is appended", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		heard := listener(t, r.db, r.store.Store)
		config := r.store.config
		config.NotifyInterval = 40 * time.Millisecond
		store := newStore(t, r.db, config)
		began := time.Now()
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for range 100 {
					if err := store.Append(t.Context(), made("orders", "busy", 1)...); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		require.NoError(t, store.Close())
		most := int(time.Since(began)/config.NotifyInterval) + 2
		sent := 0
		for hears(t, heard, time.Second) {
			sent++
		}
		require.LessOrEqual(t, sent, most)
		require.NotZero(t, sent)
	})

	t.Run("the connection that listens is made as the pool makes its own", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		config := r.db.Config()
		password := config.ConnConfig.User
		config.ConnConfig.User = "nobody_at_all"
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			c.User = password
			return nil
		}
		db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		store := newStore(t, db, r.store.config)
		told := testenv.Hints(t.Context(), store)
		select {
		case <-told:
		case <-time.After(patience):
			require.Fail(t, "the store does not listen")
		}
	})

	t.Run("notifications arrive although the pool has a handler for them", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		config := r.db.Config()
		config.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
		db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		told := testenv.Hints(t.Context(), newStore(t, db, r.store.config))
		<-told
		r.append("key", "one")
		select {
		case <-told:
		case <-time.After(patience):
			require.Fail(t, "the append was not heard of")
		}
	})

	t.Run("a listener that was ended by the server listens again", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		other := reopen(t, r.store)
		told := testenv.Hints(t.Context(), other)
		<-told
		for range 2 {
			execute(t, r.db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE `+postgrestest.Listening)
			select {
			case <-told:
			case <-time.After(patience):
				require.FailNow(t, "nobody listens again")
			}
		}
		r.append("key", "one")
		select {
		case <-told:
		case <-time.After(patience):
			require.FailNow(t, "the append was not heard of")
		}
	})

	t.Run("the connection that listens ends with the last Wake and comes back with the next", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		listening := func(want int) {
			t.Helper()
			require.Eventually(t, func() bool {
				return want == valueOf[int](t, r.db, `SELECT count(*) FROM pg_stat_activity WHERE `+postgrestest.Listening)
			}, patience, 5*time.Millisecond)
		}
		store := newStore(t, r.db, r.store.config)
		for range 2 {
			first, endFirst := context.WithCancel(t.Context())
			second, endSecond := context.WithCancel(t.Context())
			<-testenv.Hints(first, store)
			told := testenv.Hints(second, store)
			endFirst()
			r.append("key", "one")
			select {
			case <-told:
			case <-time.After(patience):
				require.FailNow(t, "the other one still listens")
			}
			listening(1)
			endSecond()
			listening(0)
		}
	})

	t.Run("a pool of one connection is enough for a transaction its appends and notifications", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		config := r.db.Config()
		config.MaxConns = 1
		db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		own := r.store.config
		own.NotifyInterval = time.Millisecond
		store := newStore(t, db, own)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var writers sync.WaitGroup
		for n := range 8 {
			writers.Go(func() {
				for range 10 {
					err := store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error {
						return store.Append(ctx, made("orders", fmt.Sprint(n), 3)...)
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		require.Equal(t, 240, valueOf[int](t, r.db, r.sql(`SELECT (SELECT count(*) FROM {records}) + (SELECT count(*) FROM {log})`)))
	})

	t.Run("a reader that stops while it receives a claim holds its topic for seconds only", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("skipped under -short: it takes more than ten seconds")
		}
		r := newRing(t, storetest.Options{})
		var records []*outmill.Record
		for i := range 4 {
			records = append(records, &outmill.Record{Topic: "orders", Key: fmt.Sprint(i), MessageID: fmt.Sprint(i), Payload: make([]byte, 8<<20)})
		}
		require.NoError(t, r.store.Append(t.Context(), records...))
		r.append("another key", "another")

		config := r.db.Config()
		config.MaxConns = 1
		stopped, gates := make(chan struct{}), &gates{}
		config.ConnConfig.Tracer = gates
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			select {
			case <-stopped:
				return conn, err
			default:
			}
			return slow{conn, stopped, make(chan struct{}), &sync.Once{}}, err
		}
		db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		store := newStore(t, db, r.store.config)
		require.NoError(t, store.Append(t.Context(), made("prepared", "one", 1)...))
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "prepared")), 1)
		lease := gates.beforeStatement(t, "log_claim", 1)
		ctx, cancel := context.WithCancel(t.Context())
		claim := async(func() ([]*outmill.Record, error) {
			return store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 4, outmill.OrderKey, "orders"))
		})
		t.Cleanup(func() { cancel(); <-claim })
		lease.wait(t)
		close(stopped)
		lease.open()

		within, end := context.WithTimeout(t.Context(), patience)
		defer end()
		found, err := r.store.Claim(within, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders"))
		require.NoError(t, err)
		require.NotEmpty(t, found)
	})

	t.Run("a reader that stops in the middle of a claim holds its topic for seconds only", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("skipped under -short: it takes ten seconds")
		}
		r := newRing(t, storetest.Options{})
		r.append("key", "one")
		lease := r.gates.beforeStatement(t, "log_claim", 1)
		stopped := async(func() ([]*outmill.Record, error) {
			return r.gated.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders"))
		})
		lease.wait(t)
		within, end := context.WithTimeout(t.Context(), patience)
		defer end()
		found, err := r.store.Claim(within, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders"))
		require.NoError(t, err)
		require.Equal(t, []string{"one"}, namesOf(found))
		lease.open()
		require.Empty(t, (<-stopped).value)
	})
}

// slow is a connection whose reader can be stopped for good.
type slow struct {
	net.Conn
	stopped chan struct{}
	ended   chan struct{}
	once    *sync.Once
}

func (s slow) Read(into []byte) (int, error) {
	select {
	case <-s.stopped:
		<-s.ended
		return 0, net.ErrClosed
	default:
		return s.Conn.Read(into)
	}
}

// pgx calls SetDeadline to end a read whose context has ended.
func (s slow) SetDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		s.once.Do(func() { close(s.ended) })
	}
	return s.Conn.SetDeadline(at)
}

func (s slow) Close() error {
	s.once.Do(func() { close(s.ended) })
	return s.Conn.Close()
}
