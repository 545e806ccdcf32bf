package allstores

import (
	"context"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
)

// passing returns an error after which the store's Transact repeats its function, or nil for
// SQLite, which never repeats it.
func (s site) passing() error {
	switch s.store.(type) {
	case *postgres.Store:
		return &pgconn.PgError{Code: "40001"}
	case *mongo.Store:
		return driver.CommandError{Labels: []string{"TransientTransactionError"}}
	}
	return nil
}

func Test_A_receipt_shows_the_last_run_of_a_transaction_on_every_store(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, s site) {
		require.NoError(t, s.store.RegisterGroup(t.Context(), outmill.Registration{Group: "a"}, outmill.Registration{Group: "b"}))
		transactor, ok := outmill.As[roles.Transactor](s.store)
		require.True(t, ok)
		passing := s.passing()
		ctx, receipt := publisher.WithReceipt(t.Context())
		runs := 0
		require.NoError(t, transactor.Transact(ctx, func(ctx context.Context) error {
			runs++
			m := message.NewMessage(fmt.Sprint("run ", runs), message.Payload("p"))
			m.SetContext(ctx)
			if err := s.pub.Publish("orders", m); err != nil {
				return err
			}
			if runs == 1 {
				return passing
			}
			return nil
		}))
		if passing != nil {
			require.Equal(t, 2, runs)
		}
		require.Len(t, receipt.Messages(), 1)
		published := receipt.Messages()[0]
		require.Equal(t, fmt.Sprint("run ", runs), published.MessageID)
		require.Len(t, published.Groups, 2)
		for group, id := range published.Groups {
			stored, err := s.store.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, group, stored.Group)
			require.Equal(t, published.MessageID, stored.MessageID)
			require.Equal(t, published.CreatedAt, stored.CreatedAt)
		}
	})
}
