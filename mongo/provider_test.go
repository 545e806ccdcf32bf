package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/storekit"
)

func TestStore_Provider(t *testing.T) {
	t.Parallel()

	t.Run("fair_topics names the topics whose tenants are served in turn", func(t *testing.T) {
		t.Parallel()
		store, err := outmill.Open(t.Context(), mongotest.Server(t)+"&fair_topics=orders,mail.*", nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		turns, ok := outmill.As[storekit.TenantTurns](store)
		require.True(t, ok)
		for topic, want := range map[string]bool{"orders": true, "mail.new": true, "order": false, "mail": false} {
			require.Equal(t, want, turns.ServesTurns(topic), topic)
		}
	})

	t.Run("an unknown parameter is refused", func(t *testing.T) {
		t.Parallel()
		_, err := outmill.Open(t.Context(), mongotest.Server(t)+"&retian=24h", nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "retian")
	})
	t.Run("ConfigOf takes the parameters of the store and the database out of a URL", func(t *testing.T) {
		t.Parallel()
		rest, config, err := mongo.ConfigOf("mongodb://me:S3CRET@host/shop?replicaSet=rs0&retain=24h")
		require.NoError(t, err)
		require.Equal(t, "mongodb://me:S3CRET@host/shop?replicaSet=rs0", rest)
		require.Equal(t, mongo.Config{Database: "shop", Retain: 24 * time.Hour}, config)
	})
}
