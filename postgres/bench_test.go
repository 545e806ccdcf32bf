package postgres_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

func BenchmarkAppend(b *testing.B) {
	for _, lane := range []postgres.Lane{postgres.LaneRows, postgres.LaneLog} {
		for _, batch := range []int{1, 100, 200, 500, 1000} {
			b.Run(string(lane)+"/"+strconv.Itoa(batch), func(b *testing.B) { storetest.BenchmarkAppend(b, batch, opening(lane)) })
		}
	}
}

func BenchmarkClaimAndAck(b *testing.B) {
	for _, lane := range []postgres.Lane{postgres.LaneRows, postgres.LaneLog} {
		b.Run(string(lane), func(b *testing.B) { storetest.BenchmarkClaimAndAck(b, 500, opening(lane)) })
	}
}

func opening(lane postgres.Lane) func(b *testing.B) outmill.Store {
	return func(b *testing.B) outmill.Store { return openBench(b, lane) }
}

// openBench uses a server that waits for the disk, which is the default. A server of
// OUTMILL_TEST_POSTGRES_URL keeps its own settings.
func openBench(b *testing.B, lane postgres.Lane) outmill.Store {
	b.Helper()
	url := os.Getenv("OUTMILL_TEST_POSTGRES_URL")
	if url == "" {
		url = postgrestest.Own(b, "fsync=on", "full_page_writes=on").URL
	}
	store, err := postgres.Open(b.Context(), postgrestest.DatabaseOn(b, url), postgres.Config{Lane: lane}, nil)
	require.NoError(b, err)
	return store
}
