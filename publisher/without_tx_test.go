package publisher_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

func TestPublisher_WithoutTransaction(t *testing.T) {
	t.Parallel()

	warnings := func(log *journal.Journal) []journal.Line { return log.Lines(watermill.ErrorLogLevel) }

	t.Run("The first message outside a transaction is warned of, once for a publisher, with the settings that end it", func(t *testing.T) {
		t.Parallel()
		got := warnings(logged(t, publisher.Config{}, func(pub *publisher.Publisher) {
			require.NoError(t, pub.Publish(orders, msg("m1"), msg("m2")))
			require.NoError(t, pub.Publish(orders, msg("m3")))
			require.NoError(t, pub.WithContext(t.Context()).Publish(orders, msg("m4")))
		}))
		require.Len(t, got, 1)
		require.Equal(t, watermill.LogFields{"store": "shop"}, got[0].Fields)
		for _, word := range []string{"Warning: ", "outside a transaction", "WithTx", "RequireTx", "AllowNoTx"} {
			require.Contains(t, got[0].Msg, word)
		}
	})

	t.Run("Nothing is warned of", func(t *testing.T) {
		t.Parallel()

		t.Run("with AllowNoTx", func(t *testing.T) {
			t.Parallel()
			require.Empty(t, warnings(logged(t, publisher.Config{AllowNoTx: true}, func(pub *publisher.Publisher) {
				require.NoError(t, pub.Publish(orders, msg("m1")))
			})))
		})

		t.Run("with RequireTx, which refuses it", func(t *testing.T) {
			t.Parallel()
			require.Empty(t, warnings(logged(t, publisher.Config{RequireTx: true}, func(pub *publisher.Publisher) {
				require.ErrorIs(t, pub.Publish(orders, msg("m1")), outmill.ErrNoTx)
			})))
		})

		t.Run("in a transaction, and by a call without messages", func(t *testing.T) {
			t.Parallel()
			capture := journal.New()
			store := newNamed(t, sqlite.Config{})
			pub, err := publisher.New(store, publisher.Config{}, capture)
			require.NoError(t, err)
			require.NoError(t, pub.Publish(orders))
			require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
				m := msg("m2")
				m.SetContext(ctx)
				return message.Publisher(pub).Publish(orders, m)
			}))
			require.Empty(t, capture.Lines())
		})
	})

	t.Run("RequireTx and AllowNoTx together are refused", func(t *testing.T) {
		t.Parallel()
		err := publisher.Config{RequireTx: true, AllowNoTx: true}.Validate()
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "publisher.Config has RequireTx and AllowNoTx")
	})

	t.Run("The errors of a missing transaction name the way of each kind of store", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{outmill.ErrNoTx, outmill.ErrForeignTx} {
			require.ErrorContains(t, err, "WithTx")
			require.ErrorContains(t, err, "on MongoDB the context of")
		}
	})
}
