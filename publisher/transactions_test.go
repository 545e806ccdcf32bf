package publisher_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

func requireTx(c *publisher.Config) { c.RequireTx = true }

func TestPublisher_Transactions(t *testing.T) {
	t.Parallel()

	t.Run("A message published in the caller's transaction", func(t *testing.T) {
		t.Parallel()

		t.Run("is there when it commits and not before, together with the business data", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			execute(t, store.DB(), "CREATE TABLE shop (id TEXT)")
			tx := begin(t, store)
			execute(t, tx, "INSERT INTO shop VALUES ('o1')")
			require.NoError(t, pub.WithContext(store.WithTx(t.Context(), tx)).Publish(orders, msg("m1"), msg("m2")))
			outmilltest.RequireNotPublished(t, store, orders)
			require.NoError(t, tx.Commit())
			requirePublished(t, store, orders, "m1", "m2")
			require.Equal(t, 1, count(t, store, "SELECT count(*) FROM shop"))
		})

		t.Run("never existed when it rolls back", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx := begin(t, store)
			require.NoError(t, pub.WithContext(store.WithTx(t.Context(), tx)).Publish(orders, msg("m1")))
			require.NoError(t, tx.Rollback())
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("is found by the message's own context", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store, requireTx)
			rollback := errors.New("rollback")
			err := store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
				return errors.Join(pub.Publish(orders, msg("m1", in(ctx)), msg("m2", in(ctx))), rollback)
			})
			require.ErrorIs(t, err, rollback)
			outmilltest.RequireNotPublished(t, store, orders)
			require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
				return pub.Publish(orders, msg("m3", in(ctx)), msg("m4", in(ctx)))
			}))
			requirePublished(t, store, orders, "m3", "m4")
		})

		t.Run("goes with those of other calls on the same transaction", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx := begin(t, store)
			view := pub.WithContext(store.WithTx(t.Context(), tx))
			require.NoError(t, view.Publish(orders, msg("m1")))
			require.NoError(t, view.Publish("invoices", msg("m2")))
			require.NoError(t, view.Publish(orders, msg("m3")))
			require.NoError(t, tx.Commit())
			requirePublished(t, store, orders, "m1", "m3")
			requirePublished(t, store, "invoices", "m2")
		})

		t.Run("goes through a handle that keeps its transaction to itself", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			handle := &userTx{tx: begin(t, store)}
			require.NoError(t, pub.WithContext(store.WithTx(t.Context(), handle)).Publish(orders, msg("m1")))
			require.Positive(t, handle.statements)
			outmilltest.RequireNotPublished(t, store, orders)
			require.NoError(t, handle.tx.Commit())
			requirePublished(t, store, orders, "m1")
		})

		t.Run("is in one transaction, however often that is wrapped", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx := begin(t, store)
			embedded, executor := struct{ *sql.Tx }{tx}, wsql.ContextExecutor(tx)
			require.NoError(t, pub.Publish(orders,
				msg("m1", in(store.WithTx(t.Context(), tx))),
				msg("m2", in(store.WithTx(t.Context(), embedded))),
				msg("m3", in(store.WithTx(t.Context(), executor)))))
			outmilltest.RequireNotPublished(t, store, orders)
			require.NoError(t, tx.Commit())
			requirePublished(t, store, orders, "m1", "m2", "m3")
		})

		t.Run("is refused when the transaction is over", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx := begin(t, store)
			require.NoError(t, tx.Commit())
			err := pub.WithContext(store.WithTx(t.Context(), tx)).Publish(orders, msg("m1"))
			require.ErrorIs(t, err, outmill.ErrInvalidTx)
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("is refused when the transaction is nil", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			good := pub.WithContext(store.WithTx(t.Context(), begin(t, store)))
			for _, ctx := range []context.Context{store.WithTx(t.Context(), nil), store.WithTx(t.Context(), (*sql.Tx)(nil))} {
				require.ErrorIs(t, pub.WithContext(ctx).Publish(orders, msg("m1")), outmill.ErrInvalidTx)
				require.ErrorIs(t, pub.Publish(orders, msg("m1", in(ctx))), outmill.ErrInvalidTx)
				require.ErrorIs(t, good.Publish(orders, msg("m1", in(ctx))), outmill.ErrInvalidTx)
			}
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("leaves it usable when the call was refused", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx := begin(t, store)
			view := pub.WithContext(store.WithTx(t.Context(), tx))
			bad := msg("bad")
			outmill.SetKey(bad, " blank")
			require.ErrorIs(t, view.Publish(orders, msg("good"), bad), outmill.ErrInvalidRecord)
			require.NoError(t, view.Publish(orders, msg("m1")))
			require.NoError(t, tx.Commit())
			requirePublished(t, store, orders, "m1")
		})
	})

	t.Run("A call without a transaction runs its own", func(t *testing.T) {
		t.Parallel()

		t.Run("and writes all its messages in their order", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			require.NoError(t, pub.Publish(orders, msg("m1"), msg("m2"), msg("m3")))
			requirePublished(t, store, orders, "m1", "m2", "m3")
		})

		t.Run("and writes none when the database refuses one", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			require.NoError(t, pub.Publish("warm-up", msg("m0")))
			execute(t, store.DB(), `CREATE TRIGGER refuse BEFORE INSERT ON outmill_records WHEN NEW.message_id = 'm150'
BEGIN SELECT RAISE(FAIL, 'no room'); END`)
			var many []*message.Message
			for i := range 200 {
				many = append(many, msg(fmt.Sprintf("m%d", i)))
			}
			require.ErrorContains(t, pub.Publish(orders, many...), "no room")
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("and nothing happens where there are no messages", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			require.NoError(t, newPublisher(t, store, requireTx).Publish(orders))
			outmilltest.RequireNotPublished(t, store, orders)
		})
	})

	t.Run("Transactions that do not fit are refused", func(t *testing.T) {
		t.Parallel()

		t.Run("two of one store in one call are ErrMixedTx", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			one, two := begin(t, store), beginReading(t, store)
			err := pub.Publish(orders, msg("m1", in(store.WithTx(t.Context(), one))), msg("m2", in(store.WithTx(t.Context(), two))))
			require.ErrorIs(t, err, outmill.ErrMixedTx)
			require.ErrorContains(t, err, "message 1")
			require.NoError(t, one.Commit())
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("two handles that hide one transaction are two", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx := begin(t, store)
			err := pub.Publish(orders, msg("m1", in(store.WithTx(t.Context(), tx))), msg("m2", in(store.WithTx(t.Context(), &userTx{tx: tx}))))
			require.ErrorIs(t, err, outmill.ErrMixedTx)
		})

		t.Run("one and none in one call are ErrMixedTx, in either order", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			tx := begin(t, store)
			for _, pub := range []*publisher.Publisher{newPublisher(t, store), newPublisher(t, store, requireTx)} {
				with := func() *message.Message { return msg("with", in(store.WithTx(t.Context(), tx))) }
				require.ErrorIs(t, pub.Publish(orders, with(), msg("without")), outmill.ErrMixedTx)
				require.ErrorIs(t, pub.Publish(orders, msg("without"), with()), outmill.ErrMixedTx)
				require.ErrorIs(t, pub.Publish(orders, msg("without", in(t.Context())), with()), outmill.ErrMixedTx)
			}
			require.NoError(t, tx.Commit())
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("one of another store only is ErrForeignTx", func(t *testing.T) {
			t.Parallel()
			store, other := outmilltest.NewStore(t), outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			foreign := other.WithTx(t.Context(), begin(t, other))
			require.ErrorIs(t, pub.Publish(orders, msg("m1", in(foreign))), outmill.ErrForeignTx)
			require.ErrorIs(t, pub.WithContext(foreign).Publish(orders, msg("m1")), outmill.ErrForeignTx)
			require.ErrorIs(t, pub.WithContext(t.Context()).Publish(orders, msg("m1", in(foreign))), outmill.ErrForeignTx)
			require.ErrorContains(t, pub.Publish(orders, msg("m1"), msg("m2", in(foreign))), "message 1")
			outmilltest.RequireNotPublished(t, store, orders)
			outmilltest.RequireNotPublished(t, other, orders)
		})

		t.Run("none is ErrNoTx where one is required", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store, requireTx)
			require.ErrorIs(t, pub.Publish(orders, msg("m1")), outmill.ErrNoTx)
			require.ErrorIs(t, pub.Publish(orders, msg("m1", in(t.Context()))), outmill.ErrNoTx)
			require.ErrorIs(t, pub.Publish(orders, msg("m1")), outmill.ErrNoTx)
			require.ErrorIs(t, pub.WithContext(t.Context()).Publish(orders, msg("m1")), outmill.ErrNoTx)
			outmilltest.RequireNotPublished(t, store, orders)
		})
	})

	t.Run("A context carries transactions of several stores", func(t *testing.T) {
		t.Parallel()
		one, two := newNamed(t, sqlite.Config{Name: "one"}), newNamed(t, sqlite.Config{Name: "two"})
		pubOne, pubTwo := newPublisher(t, one, requireTx), newPublisher(t, two, requireTx)
		txOne, txTwo := begin(t, one), begin(t, two)
		ctx := one.WithTx(two.WithTx(t.Context(), txTwo), txOne)
		require.NoError(t, pubOne.Publish(orders, msg("m1", in(ctx))))
		require.NoError(t, pubTwo.WithContext(ctx).Publish(orders, msg("m2")))
		require.NoError(t, txOne.Rollback())
		require.NoError(t, txTwo.Commit())
		outmilltest.RequireNotPublished(t, one, orders)
		requirePublished(t, two, orders, "m2")
	})
}

// userTx is a transaction type of a user, which sees all statements.
type userTx struct {
	tx         *sql.Tx
	statements int
}

func (u *userTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	u.statements++
	return u.tx.ExecContext(ctx, query, args...)
}

func (u *userTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	u.statements++
	return u.tx.QueryContext(ctx, query, args...)
}
