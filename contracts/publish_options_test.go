package contracts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storetest/memstore"
)

// integrationRig is an integration bus over a store in memory.
type integrationRig struct {
	*memstore.Store
	bus *contracts.IntegrationBus
	// seen is what the OnPublish of the config has seen.
	seen []string
}

func newIntegrationRig(t *testing.T) *integrationRig {
	t.Helper()
	r := &integrationRig{Store: memstore.New(memstore.NewDatabase(), memstore.Options{})}
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	require.NoError(t, r.Ensure(t.Context()))
	pub, err := publisher.New(r, publisher.Config{AllowNoTx: true}, nil)
	require.NoError(t, err)
	r.bus, err = contracts.NewIntegrationBusWithConfig(pub, cqrs.EventBusConfig{
		Marshaler:            cqrs.JSONMarshaler{},
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
		OnPublish: func(params cqrs.OnEventSendParams) error {
			r.seen = append(r.seen, params.Message.UUID)
			return nil
		},
	})
	require.NoError(t, err)
	return r
}

func (r *integrationRig) records(t *testing.T) []*outmill.Record {
	t.Helper()
	list, err := r.List(t.Context(), outmill.ListQuery{Content: true})
	require.NoError(t, err)
	return list
}

func TestIntegrationBus_Options(t *testing.T) {
	t.Parallel()
	t.Run("a call gives the message its id, topic, correlation and the time at which it is due", func(t *testing.T) {
		t.Parallel()
		r := newIntegrationRig(t)
		require.NoError(t, r.bus.Publish(t.Context(), OrderPlaced{ID: "1"},
			contracts.WithMessageID("placed-1"), contracts.WithTopic("partners"), contracts.WithCorrelationID("c1"),
			contracts.WithVisibleAfter(time.Hour)))
		records := r.records(t)
		require.Len(t, records, 1)
		got := records[0]
		require.Equal(t, []string{"placed-1", "partners", "c1"}, []string{got.MessageID, got.Topic, got.CorrelationID})
		require.Equal(t, time.Hour, got.DueAt.Sub(got.CreatedAt))
		require.Contains(t, string(got.Payload), `"1"`)
		require.Equal(t, []string{"placed-1"}, r.seen)
	})
	t.Run("a call without options, or with empty ones, is one of Watermill's bus", func(t *testing.T) {
		t.Parallel()
		r := newIntegrationRig(t)
		require.NoError(t, r.bus.Publish(t.Context(), OrderPlaced{ID: "1"}))
		require.NoError(t, r.bus.Publish(t.Context(), OrderPlaced{ID: "2"},
			contracts.WithMessageID(""), contracts.WithTopic(""), contracts.WithCorrelationID(""), contracts.WithVisibleAfter(-1)))
		for _, got := range r.records(t) {
			require.NotEmpty(t, got.MessageID)
			require.Equal(t, []string{"events", ""}, []string{got.Topic, got.CorrelationID})
			require.Equal(t, got.CreatedAt, got.DueAt)
		}
		require.Len(t, r.records(t), 2)
	})
	t.Run("the last option of a kind counts, and only for its call", func(t *testing.T) {
		t.Parallel()
		r := newIntegrationRig(t)
		require.NoError(t, r.bus.Publish(t.Context(), OrderPlaced{}, contracts.WithTopic("one"), contracts.WithTopic("two")))
		require.NoError(t, r.bus.Publish(t.Context(), OrderPlaced{}))
		records := r.records(t)
		require.ElementsMatch(t, []string{"two", "events"}, []string{records[0].Topic, records[1].Topic})
	})
	t.Run("a bus that cannot set options refuses them, and publishes nothing", func(t *testing.T) {
		t.Parallel()
		var got published
		bus, err := contracts.NewIntegrationBus(&got)
		require.NoError(t, err)
		err = bus.Publish(t.Context(), OrderPlaced{}, contracts.WithTopic("partners"))
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "NewIntegrationBusWithConfig")
		require.Empty(t, got)
	})
	t.Run("an error of the config's OnPublish is returned, and nothing is published", func(t *testing.T) {
		t.Parallel()
		r := newIntegrationRig(t)
		boom := errors.New("boom")
		pub, err := publisher.New(r, publisher.Config{AllowNoTx: true}, nil)
		require.NoError(t, err)
		bus, err := contracts.NewIntegrationBusWithConfig(pub, cqrs.EventBusConfig{
			Marshaler:            cqrs.JSONMarshaler{},
			GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
			OnPublish:            func(cqrs.OnEventSendParams) error { return boom },
		})
		require.NoError(t, err)
		require.ErrorIs(t, bus.Publish(t.Context(), OrderPlaced{}), boom)
		require.Empty(t, r.records(t))
	})
	t.Run("refuses to be made of no publisher or an invalid config", func(t *testing.T) {
		t.Parallel()
		r := newIntegrationRig(t)
		pub, err := publisher.New(r, publisher.Config{}, nil)
		require.NoError(t, err)
		for _, p := range []message.Publisher{nil, (*publisher.Publisher)(nil), pub} {
			_, err := contracts.NewIntegrationBusWithConfig(p, cqrs.EventBusConfig{})
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
	})
}
