package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

func ensured(t *testing.T, config postgres.Config) *postgres.Store {
	t.Helper()
	store := newStore(t, readyPool(t, config), config)
	require.NoError(t, store.Ensure(t.Context()))
	return store
}

// registered is a store with a group that reads all topics.
func registered(t *testing.T) *postgres.Store {
	t.Helper()
	store := ensured(t, postgres.Config{})
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return store
}

func one(name string) *outmill.Record { return &outmill.Record{Topic: "orders", MessageID: name} }

func TestStore_Tx(t *testing.T) {
	t.Parallel()

	t.Run("a nested transaction that rolls back takes only its own records along", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		err := store.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, store.Append(ctx, one("outer")))
			nested, err := tx.Begin(ctx)
			require.NoError(t, err)
			require.NoError(t, store.Append(store.WithTx(ctx, nested), one("rolled back")))
			require.NoError(t, nested.Rollback(ctx))
			nested, err = tx.Begin(ctx)
			require.NoError(t, err)
			require.NoError(t, store.Append(store.WithTx(ctx, nested), one("nested")))
			return nested.Commit(ctx)
		})
		require.NoError(t, err)
		require.Equal(t, []string{"nested", "outer"}, listed(t, store))
	})

	t.Run("a transaction that its function refuses leaves nothing", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		refusal := errors.New("no credit")
		err := store.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
			require.NoError(t, store.Append(ctx, one("never")))
			return refusal
		})
		require.Equal(t, refusal, err)
		require.Empty(t, listed(t, store))
	})

	t.Run("a wrapped pgx transaction is that transaction", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		for _, commit := range []bool{false, true} {
			tx, err := store.Pool().Begin(t.Context())
			require.NoError(t, err)
			wrapped := &pgxTx{tx, t.Context()}
			ctx := store.WithTx(t.Context(), wrapped)
			require.NoError(t, store.Append(ctx, one("wrapped")))
			require.NoError(t, store.Append(store.WithTx(t.Context(), tx), one("plain")))
			found, err := store.TxOf(ctx)
			require.NoError(t, err)
			require.True(t, found == any(tx))
			if commit {
				require.NoError(t, wrapped.Commit())
				require.Equal(t, []string{"plain", "wrapped"}, listed(t, store))
			} else {
				require.NoError(t, wrapped.Rollback())
				require.Empty(t, listed(t, store))
			}
		}
	})

	t.Run("handles of database sql are transactions too", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		db := stdlib.OpenDBFromPool(store.Pool())
		defer func() { require.NoError(t, db.Close()) }()
		for name, wrap := range map[string]func(*sql.Tx) any{
			"bare":     func(tx *sql.Tx) any { return tx },
			"wrapped":  func(tx *sql.Tx) any { return &wrapper{tx} },
			"hidden":   func(tx *sql.Tx) any { return hidden{tx} },
			"rewrites": func(tx *sql.Tx) any { return rewriter{tx} },
		} {
			for _, commit := range []bool{false, true} {
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				ctx := store.WithTx(t.Context(), wrap(tx))
				require.NoError(t, store.Append(ctx, odd(name)))
				require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "orders", MessageID: name + " again", DedupKey: name}))
				if !commit {
					require.NoError(t, tx.Rollback())
					require.NotContains(t, listed(t, store), name)
					continue
				}
				require.NoError(t, tx.Commit())
				found, err := store.List(t.Context(), outmill.ListQuery{Content: true})
				require.NoError(t, err)
				require.Equal(t, odd(name).Metadata, found[0].Metadata)
				require.Equal(t, odd(name).Payload, found[0].Payload)
				require.Equal(t, odd(name).Key, found[0].Key)
				_, err = store.Delete(t.Context(), found[0].ID, found[1].ID)
				require.NoError(t, err)
			}
		}
	})

	t.Run("a value that is no transaction is refused before a statement is sent", func(t *testing.T) {
		t.Parallel()
		store := ensured(t, postgres.Config{})
		db := stdlib.OpenDBFromPool(store.Pool())
		defer func() { require.NoError(t, db.Close()) }()
		conn, err := store.Pool().Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		embedded := struct{ *pgxpool.Pool }{store.Pool()}
		for _, tx := range []any{nil, (*sql.Tx)(nil), (pgx.Tx)(nil), db, store.Pool(), embedded, conn, conn.Conn(), &pgxTx{}, "a transaction"} {
			ctx := store.WithTx(t.Context(), tx)
			require.ErrorIs(t, store.Append(ctx, one("never")), outmill.ErrInvalidTx, "%T", tx)
			_, err := store.TxOf(ctx)
			require.ErrorIs(t, err, outmill.ErrInvalidTx, "%T", tx)
		}
		require.Empty(t, listed(t, store))
	})

	t.Run("appends of one transaction are serialised over its nested ones", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		err := store.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			nested, err := tx.Begin(ctx)
			require.NoError(t, err)
			var appends errgroup.Group
			for i := range 16 {
				appends.Go(func() error {
					within := ctx
					if i%2 == 0 {
						within = store.WithTx(ctx, nested)
					}
					return store.Append(within, one(fmt.Sprint("m", i)), one(fmt.Sprint("n", i)))
				})
			}
			require.NoError(t, appends.Wait())
			return nested.Commit(ctx)
		})
		require.NoError(t, err)
		require.Len(t, listed(t, store), 32)
	})

	t.Run("an error in a caller's transaction wraps the drivers error and names the remedy", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		first := one("first")
		first.Delay = time.Hour
		require.NoError(t, store.Append(t.Context(), first))
		tx, err := store.Pool().Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		again := one("again")
		again.ID, again.Delay = first.ID, time.Hour
		err = store.Append(store.WithTx(t.Context(), tx), again)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "23505", pgErr.Code)
	})

	t.Run("copied records equal inserted ones", func(t *testing.T) {
		t.Parallel()
		store := ensured(t, postgres.Config{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
		require.NoError(t, store.RegisterGroup(t.Context(),
			outmill.Registration{Group: readers, Topics: outmill.Topics{Include: []string{"orders"}}}))
		isCopied(t, store, false)
		isCopied(t, store, true)
	})

	t.Run("steps of joins are published in transactions of either library", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		db := stdlib.OpenDBFromPool(store.Pool())
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		for name, publish := range map[string]func(fn func(ctx context.Context) error) error{
			"pgx": func(fn func(ctx context.Context) error) error {
				return store.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error { return fn(ctx) })
			},
			"database/sql": func(fn func(ctx context.Context) error) error {
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				return errors.Join(fn(store.WithTx(t.Context(), tx)), tx.Commit())
			},
		} {
			const many = 60 // by COPY, if that is available
			join := &roles.Join{ExpectedSteps: many + 2}
			step := func() *outmill.Record { return &outmill.Record{Topic: "steps", Joins: []outmill.JoinID{join.ID}} }
			require.NoError(t, publish(func(ctx context.Context) error {
				if err := store.StartJoin(ctx, join); err != nil {
					return err
				}
				var all []*outmill.Record
				for range many {
					all = append(all, step())
				}
				return errors.Join(store.Append(ctx, step()), store.Append(ctx, &outmill.Record{Topic: "steps", DedupKey: name}, step()),
					store.Append(ctx, all...))
			}), name)
			steps, err := store.ListSteps(t.Context(), join.ID, outmill.WorkItemID{}, 100)
			require.NoError(t, err)
			require.Len(t, steps, many+2, name)
		}
	})
}

// wrapper is a handle as query builders have them.
type wrapper struct{ *sql.Tx }

// hidden is a handle with an unexported transaction, so it gets the statements.
type hidden struct{ tx *sql.Tx }

func (h hidden) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return h.tx.ExecContext(ctx, query, args...)
}

func (h hidden) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return h.tx.QueryContext(ctx, query, args...)
}

// rewriter embeds its transaction, and rewrites statements, as bun does.
type rewriter struct{ *sql.Tx }

func (r rewriter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return r.Tx.ExecContext(ctx, strings.ReplaceAll(query, "$", "?"), args...)
}

func (r rewriter) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return r.Tx.QueryContext(ctx, strings.ReplaceAll(query, "$", "?"), args...)
}

// pgxTx is a transaction like that of watermill-sql v4: its Commit and Rollback differ from
// pgx's.
type pgxTx struct {
	pgx.Tx
	ctx context.Context
}

func (t pgxTx) Commit() error   { return t.Tx.Commit(t.ctx) }
func (t pgxTx) Rollback() error { return t.Tx.Rollback(t.ctx) }

// odd returns a record with text that must be quoted in the text form of an array.
func odd(name string) *outmill.Record {
	return &outmill.Record{
		Topic: "orders", MessageID: name, Key: `a "b" \c {d},NULL'é` + "\n\t☃",
		Payload:  []byte{0, 1, '"', '\\', 255},
		Metadata: map[string]string{`k"\`: `v{,}"\'` + "\n", "NULL": "NULL", "": ""},
	}
}

// isCopied appends records, timed ones and others: times keep a record out of the log.
func isCopied(t *testing.T, store *postgres.Store, timed bool) {
	t.Helper()
	for _, n := range []int{1, 5000} {
		batch := make([]*outmill.Record, n)
		for i := range batch {
			batch[i] = odd(fmt.Sprint("m", i))
			batch[i].TenantID, batch[i].CorrelationID, batch[i].TraceParent = "t", "c", "p"
			if timed {
				batch[i].Delay, batch[i].TimeToLive = 1, time.Hour
			}
		}
		require.NoError(t, store.Append(t.Context(), batch...))
		got, err := store.Get(t.Context(), batch[n-1].ID)
		require.NoError(t, err)
		want := odd(fmt.Sprint("m", n-1))
		require.Equal(t, want.Metadata, got.Metadata)
		require.Equal(t, want.Payload, got.Payload)
		require.Equal(t, want.Key, got.Key)
		require.Equal(t, []string{"t", "c", "p", outmill.DefaultGroup}, []string{got.TenantID, got.CorrelationID, got.TraceParent, got.Group})
		if timed {
			require.Equal(t, int64(1), got.DueAt.Sub(got.CreatedAt).Microseconds())
			require.Equal(t, time.Hour, got.ExpiresAt.Sub(got.CreatedAt))
		}
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), n, outmill.OrderNone)), n)
	}
}
