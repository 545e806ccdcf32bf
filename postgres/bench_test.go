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
	for _, batch := range []int{1, 100, 200, 500, 1000} {
		b.Run(strconv.Itoa(batch), func(b *testing.B) { storetest.BenchmarkAppend(b, batch, openBench) })
	}
}

func BenchmarkClaimAndAck(b *testing.B) { storetest.BenchmarkClaimAndAck(b, 500, openBench) }

// openBench uses a server that waits for the disk, which is the default. A server of
// OUTMILL_TEST_POSTGRES_URL keeps its own settings.
func openBench(b *testing.B) outmill.Store {
	b.Helper()
	url := os.Getenv("OUTMILL_TEST_POSTGRES_URL")
	if url == "" {
		url = postgrestest.Own(b, "fsync=on", "full_page_writes=on").URL
	}
	store, err := postgres.Open(b.Context(), postgrestest.DatabaseOn(b, url), postgres.Config{}, nil)
	require.NoError(b, err)
	return store
}
