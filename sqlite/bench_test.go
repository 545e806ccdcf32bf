package sqlite_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest"
)

func BenchmarkAppend(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(strconv.Itoa(batch), func(b *testing.B) { storetest.BenchmarkAppend(b, batch, openBench) })
	}
}

func BenchmarkClaimAndAck(b *testing.B) { storetest.BenchmarkClaimAndAck(b, 100, openBench) }

// openBench keeps synchronous(FULL), as Open sets it, so that the measurement includes the
// fsync of each commit.
func openBench(b *testing.B) outmill.Store {
	b.Helper()
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), sqlite.Config{}, nil)
	require.NoError(b, err)
	return store
}
