package postgres_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

// huge makes a payload that does not compress, or skips the test.
func huge(t *testing.T, n int) []byte {
	t.Helper()
	testenv.Unraced(t, "some GiB of memory and some minutes")
	payload := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(payload)
	return payload
}

func TestStore_Large(t *testing.T) {
	// It is not parallel, because each step holds the payload several times.
	t.Run("a payload of hundreds of MiB comes as it was published", func(t *testing.T) {
		testenv.Long(t, "payloads of 300 MiB")
		payload := huge(t, 300<<20)
		one := func(name string) *outmill.Record {
			return &outmill.Record{Topic: "orders", MessageID: name, Payload: payload}
		}
		refused := func(err error) {
			t.Helper()
			var invalid *outmill.InvalidRecordError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "payload", invalid.Field)
		}
		config := postgres.Config{MaxPayload: postgres.MostMaxPayload}
		url := readyDatabase(t, config)
		db := connect(t, url)
		store := newStore(t, db, config)
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		asText := newStore(t, connectAs(t, url,
			func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }), config)

		require.NoError(t, store.Append(t.Context(), one("first")))
		found := claimed(t, asText, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
		require.Len(t, found, 1)
		require.True(t, bytes.Equal(payload, found[0].Payload), "as text")
		require.NoError(t, asText.Release(t.Context(), leasesOf(found)))
		require.NoError(t, store.Append(t.Context(), one("second"), one("third")), "as it is sent, it is small enough")
		require.Equal(t, 3, valueOf[int](t, db, "SELECT count(payload) FROM outmill.readable WHERE length(payload) > 0"),
			"people can look at them")
		found = claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
		require.Len(t, found, 3)
		for _, record := range found {
			require.True(t, bytes.Equal(payload, record.Payload), record.MessageID)
		}
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))

		refused(store.Append(t.Context(), one("a"), one("b"), one("c"), one("d")))
		refused(asText.Append(t.Context(), one("as text")))
		require.Empty(t, listed(t, store))
	})

	t.Run("a payload of hundreds of MiB is published in a transaction of database sql", func(t *testing.T) {
		payload := huge(t, 300<<20)
		db := readyPool(t, postgres.Config{})
		store := newStore(t, db, postgres.Config{MaxPayload: postgres.MostMaxPayload})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		std := stdlib.OpenDBFromPool(db)
		defer func() { require.NoError(t, std.Close()) }()
		tx, err := std.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ctx := store.WithTx(t.Context(), tx)
		one := &outmill.Record{Topic: "orders", Payload: payload}
		require.ErrorIs(t, store.Append(ctx, one, &outmill.Record{Topic: "orders", Payload: payload}), outmill.ErrInvalidRecord,
			"it is sent as text, which has twice the size")
		require.NoError(t, store.Append(ctx, one), "the transaction goes on")
		require.NoError(t, tx.Commit())
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
		require.Len(t, found, 1)
		require.True(t, bytes.Equal(payload, found[0].Payload))

		tooMuch := &outmill.Record{Topic: "orders", Metadata: map[string]string{"name": strings.Repeat("m", 1<<28)}}
		require.ErrorIs(t, store.Append(t.Context(), tooMuch), outmill.ErrInvalidRecord)
	})

	// A dump has the text form of a row, which is near PostgreSQL's limit.
	t.Run("the largest payload is dumped and restored", func(t *testing.T) {
		payload := huge(t, postgres.MostMaxPayload)
		config := postgres.Config{MaxPayload: postgres.MostMaxPayload}
		url := readyDatabase(t, config)
		store := newStore(t, connect(t, url), config)
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
			return store.Append(ctx, &outmill.Record{Topic: "orders", MessageID: strings.Repeat("m", 255), Payload: payload})
		}))
		file := filepath.Join(t.TempDir(), "dump")
		run(t, "pg_dump", "--format=custom", "--compress=0", "--file", file, url)
		there := postgrestest.Database(t)
		restore(t, file, there)
		found := claimed(t, newStore(t, connect(t, there), config), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.Len(t, found, 1)
		require.True(t, bytes.Equal(payload, found[0].Payload))
	})
}

func restore(t *testing.T, file, url string) {
	t.Helper()
	run(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname", url, file)
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	bin, err := postgresengine.Binaries(t.Context())
	require.NoError(t, err)
	path := filepath.Join(bin, program)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: this PostgreSQL has no %s", program)
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
