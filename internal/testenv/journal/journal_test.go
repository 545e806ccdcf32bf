package journal_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/journal"
)

func TestJournal(t *testing.T) {
	t.Parallel()

	t.Run("keeps the lines of all levels with the fields of With", func(t *testing.T) {
		t.Parallel()
		log, boom := journal.New(), errors.New("boom")
		shop := log.With(watermill.LogFields{"store": "shop"}).With(watermill.LogFields{"topic": "orders"})
		shop.Error("failed", boom, watermill.LogFields{"n": 1})
		shop.Info("told", nil)
		log.Debug("more", nil)
		log.Trace("most", nil)
		failed := journal.Line{watermill.ErrorLogLevel, "failed", boom, watermill.LogFields{"store": "shop", "topic": "orders", "n": 1}}
		require.Equal(t, []journal.Line{failed}, log.Lines(watermill.ErrorLogLevel))
		require.Len(t, log.Lines(), 4)
		require.Len(t, log.Lines(watermill.DebugLogLevel, watermill.TraceLogLevel), 2)
		require.Equal(t, []string{"ERROR failed err=boom map[n:1 store:shop topic:orders]"}, log.Find("store:shop", "boom"))
		require.Equal(t, 2, log.Count("orders"))
		require.Equal(t, "TRACE most err=<nil> map[]", log.Wait(t, "most"))
		require.Len(t, log.Take(), 4)
		require.Empty(t, log.Lines())
		require.Empty(t, log.Find())
	})

	t.Run("is read while others log, and what was read stays as it is", func(t *testing.T) {
		t.Parallel()
		log, fields := journal.New(), watermill.LogFields{"n": 0}
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for range 200 {
					log.With(fields).Info("told", fields)
				}
			})
		}
		log.Wait(t, "told")
		read := log.Lines()
		for _, line := range read {
			line.Fields["n"] = "the reader's"
		}
		log.Find("told")
		writers.Wait()
		require.Len(t, log.Lines(watermill.InfoLogLevel), 800)
		require.Equal(t, watermill.LogFields{"n": 0}, fields)
	})
}
