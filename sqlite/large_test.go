package sqlite_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/sqlite"
)

func TestStore_Large(t *testing.T) {
	// It is not parallel, because it holds the payload several times.
	t.Run("a payload of hundreds of MB comes as it was published", func(t *testing.T) {
		testenv.Unraced(t, "some GiB of memory")
		payload := make([]byte, 300<<20)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(payload)
		store := newStore(t)
		appendAll(t, store, &outmill.Record{Topic: "orders", Payload: payload})
		found := claim(t, store, claimRequest(outmill.NewOwnerToken(), 1, outmill.OrderKey))
		require.Len(t, found, 1)
		require.True(t, bytes.Equal(payload, found[0].Payload))
		require.NoError(t, store.Ack(t.Context(), "", leases(found)))

		// Both together would be larger than a row of SQLite may be.
		large := &outmill.Record{Topic: "orders", Payload: payload, Metadata: map[string]string{"name": strings.Repeat("m", 400_000_000)}}
		err := store.Append(t.Context(), large)
		var invalid *outmill.InvalidRecordError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "metadata", invalid.Field)
		require.Greater(t, sqlite.DefaultMaxPayload, len(payload))
	})
}
