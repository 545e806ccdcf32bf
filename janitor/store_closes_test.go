package janitor_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/storetest/memstore"
)

func TestJanitor_StoreCloses(t *testing.T) {
	t.Parallel()

	t.Run("Run ends without an error line when the store closes, and does not begin on a closed store", func(t *testing.T) {
		t.Parallel()
		store := memstore.New(memstore.NewDatabase(), memstore.Options{})
		require.NoError(t, store.Ensure(t.Context()))
		logs, rounds := journal.New(), make(chan bool, 100)
		j, err := janitor.New(store, janitor.Config{Interval: time.Millisecond, OnRound: func(janitor.Report, error) {
			select {
			case rounds <- true:
			default:
			}
		}}, logs)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- j.Run(t.Context()) }()
		<-rounds
		require.NoError(t, store.Close())
		require.NoError(t, <-ended)
		require.Empty(t, logs.Lines(watermill.ErrorLogLevel))
		require.ErrorIs(t, j.Run(t.Context()), outmill.ErrClosed)
	})
}
