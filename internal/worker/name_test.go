package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

func TestName(t *testing.T) {
	t.Parallel()

	t.Run("acked records keep the name of the worker", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{Retain: never}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
		r := &rig{t, &faulty{Store: store, before: map[string]fault{}, after: map[string]fault{}}}
		rec := r.append("a")[0]
		r.take(r.start(func(cfg *worker.Config) { cfg.Name = "host-1:4711" })).Ack()
		require.Equal(t, "host-1:4711", r.eventuallyStatus(rec, outmill.StatusProcessed).ProcessedBy)
	})

	t.Run("a worker has its configured name or that of its process", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "replies-1", worker.Name("replies-1"))
		host, err := os.Hostname()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%s:%d", host, os.Getpid()), worker.Name(""))
		require.NoError(t, storekit.CheckWorker(worker.Name("")))
	})
}
