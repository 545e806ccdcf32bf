package postgres_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

// BenchmarkPublish publishes a message in a caller's transaction, beside a hand-written INSERT of the same columns. What the
// first one allocates beyond the second is the cost of publisher, engine and driver.
func BenchmarkPublish(b *testing.B) {
	pool, err := pgxpool.New(b.Context(), postgrestest.Database(b))
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(b.Context(), `CREATE TABLE bare (seq bigint GENERATED ALWAYS AS IDENTITY, id uuid PRIMARY KEY,
		created_at timestamptz NOT NULL, topic text NOT NULL, key text NOT NULL, message_id text NOT NULL, metadata jsonb, payload bytea)`)
	require.NoError(b, err)
	store, err := postgres.New(pool, postgres.Config{}, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	require.NoError(b, store.Ensure(b.Context()))
	require.NoError(b, store.RegisterGroup(b.Context(), outmill.Registration{Topics: outmill.Topics{Include: []string{"orders"}}}))
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(b, err)
	msg := message.NewMessage("0195f3a2-3d49-7000-8000-000000000001", make([]byte, 200))
	msg.Metadata.Set("name", "order_placed")
	outmill.SetKey(msg, "customer 7")
	each := func(b *testing.B, write func(ctx context.Context, tx pgx.Tx) error) {
		b.Helper()
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
				// The session's own commits do not wait for the disk, so that the processor's time shows.
				if _, err := tx.Exec(b.Context(), "SET LOCAL synchronous_commit = off"); err != nil {
					return err
				}
				return write(b.Context(), tx)
			}))
		}
	}
	b.Run("publish", func(b *testing.B) {
		each(b, func(ctx context.Context, tx pgx.Tx) error {
			return pub.WithContext(store.WithTx(ctx, tx)).Publish("orders", msg)
		})
	})
	b.Run("insert", func(b *testing.B) {
		each(b, func(ctx context.Context, tx pgx.Tx) error {
			metadata, err := json.Marshal(map[string]string{"name": msg.Metadata["name"]})
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO bare (id, created_at, topic, key, message_id, metadata, payload) VALUES ($1, $2, $3, $4, $5, $6, $7)",
				[16]byte(outmill.NewWorkItemID()), time.Now(), "orders", msg.Metadata[outmill.MetadataKey], msg.UUID, metadata, []byte(msg.Payload))
			return err
		})
	})
}
