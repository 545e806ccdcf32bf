package forwarder_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/storetest/memstore"
)

// slow is a publisher whose calls wait until they may go on.
type slow struct{ began, goOn chan bool }

func (s *slow) Publish(string, ...*message.Message) error {
	s.began <- true
	<-s.goOn
	return nil
}

func (*slow) Close() error { return nil }

func TestForwarder_StoreCloses(t *testing.T) {
	t.Parallel()

	t.Run("a store that is closed first has the ack of the publish in progress, and Run returns without an error line", func(t *testing.T) {
		t.Parallel()
		database := memstore.NewDatabase()
		store := memstore.New(database, memstore.Options{})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "m1", Payload: []byte("{}")}))
		broker, logs := &slow{began: make(chan bool), goOn: make(chan bool)}, journal.New()
		fwd, err := forwarder.New(store, broker, quick(), logs)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- fwd.Run(t.Context()) }()
		<-broker.began
		closed := make(chan error, 1)
		go func() { closed <- store.Close() }()
		close(broker.goOn)
		require.NoError(t, <-closed)
		require.NoError(t, <-ended)
		left, err := memstore.New(database, memstore.Options{}).List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.Empty(t, left)
		require.Empty(t, logs.Lines(watermill.ErrorLogLevel))
	})
}
