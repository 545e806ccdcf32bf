package sagas_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
	"github.com/outmill/outmill/sagas"
)

type (
	orderPlaced struct{ Order string }
	orderPaid   struct{ Order string }
	unpaid      struct{}
)

func marshalers(t *testing.T) map[string]cqrs.CommandEventMarshaler {
	t.Helper()
	registry, err := contracts.NewRegistry(
		contracts.Of[orderPlaced]("orders.placed", 1), contracts.Of[orderPaid]("orders.paid", 1), contracts.Of[unpaid]("orders.unpaid", 1))
	require.NoError(t, err)
	return map[string]cqrs.CommandEventMarshaler{
		"of contracts":        registry.Marshaler(contracts.MarshalerConfig{}),
		"of Watermill's cqrs": cqrs.JSONMarshaler{},
	}
}

func TestConfig_Marshaler(t *testing.T) {
	t.Parallel()
	for name, marshaler := range marshalers(t) {
		send := func(t *testing.T, s *shop, v any) {
			t.Helper()
			msg, err := marshaler.Marshal(v)
			require.NoError(t, err)
			require.NoError(t, s.pub.Publish("orders", msg))
		}
		ofPlaced := func(m orderPlaced) string { return m.Order }
		ofPaid := func(m orderPaid) string { return m.Order }
		t.Run("a marshaler "+name+" passes each type of a topic to its reaction, and encodes published messages", func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.run(t, sagas.Config{Marshaler: marshaler, KeepFinished: true},
				sagas.StartedBy("orders", ofPlaced, func(c *sagas.Context[order], _ orderPlaced) error {
					c.State.Placed++
					return c.Timeout("orders", time.Millisecond, unpaid{})
				}),
				sagas.Timeout("orders", func(c *sagas.Context[order], _ unpaid) error {
					return c.PublishValue("orders", &orderPaid{c.Correlation})
				}),
				sagas.On("orders", ofPaid, func(c *sagas.Context[order], _ orderPaid) error {
					c.State.Paid = true
					c.Complete()
					return nil
				}))
			send(t, s, orderPlaced{"o1"})
			s.settled(t, outmill.StatusProcessed, 3)
			saga, state, err := s.find(t, "o1")
			require.NoError(t, err)
			require.True(t, saga.Finished)
			require.Equal(t, order{Placed: 1, Paid: true}, state)
		})
		for _, acks := range []bool{false, true} {
			says, status := "goes dead", outmill.StatusDead
			if acks {
				says, status = "is acked with AckUnknown", outmill.StatusProcessed
			}
			t.Run("with a marshaler "+name+" a message of a type that has no reaction "+says, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				s.run(t, sagas.Config{Marshaler: marshaler, AckUnknown: acks},
					sagas.StartedBy("orders", ofPlaced, func(*sagas.Context[order], orderPlaced) error { return nil }))
				send(t, s, orderPaid{"o1"})
				rec := s.settled(t, status, 1)[0]
				require.Equal(t, acks, rec.LastError == "", rec.LastError)
				if !acks {
					require.ErrorContains(t, errors.New(rec.LastError), sagas.ErrUnknownMessage.Error())
				}
			})
		}
	}
	t.Run("a reaction that takes *message.Message gets the messages of every other type, undecoded", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		ofMessage := func(m *message.Message) string { return m.Metadata.Get("order") }
		s.run(t, sagas.Config{}, sagas.StartedBy("raw", ofMessage, func(c *sagas.Context[order], m *message.Message) error {
			require.Same(t, c.Message, m)
			c.State.Placed = len(m.Payload)
			return nil
		}))
		msg := message.NewMessage("raw", []byte("no JSON"))
		msg.Metadata.Set("order", "o1")
		require.NoError(t, s.pub.Publish("raw", msg))
		s.settled(t, outmill.StatusProcessed, 1)
		_, state, err := s.find(t, "o1")
		require.NoError(t, err)
		require.Equal(t, 7, state.Placed)
	})
}

func TestDefine(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	registry, err := contracts.NewRegistry(contracts.Of[orderPlaced]("orders.placed", 1))
	require.NoError(t, err)
	marshaler := registry.Marshaler(contracts.MarshalerConfig{})
	ofPlaced := func(m orderPlaced) string { return m.Order }
	nothing := func(*sagas.Context[order], orderPlaced) error { return nil }
	ofPointer := func(m *orderPlaced) string { return m.Order }
	ofMessage := func(m *message.Message) string { return m.UUID }
	notDecoded := func(*sagas.Context[order], *message.Message) error { return nil }
	for name, reactions := range map[string][]sagas.Reaction[order]{
		"two reactions to one type of a topic":           {sagas.On("orders", ofPlaced, nothing), sagas.StartedBy("orders", ofPlaced, nothing)},
		"a reaction without a topic":                     {sagas.On("", ofPlaced, nothing)},
		"the zero reaction":                              {{}},
		"a type that is not a contract of the marshaler": {sagas.On("orders", ofOrder, placed)},
		"a pointer to a type": {sagas.On("orders", ofPointer, func(*sagas.Context[order], *orderPlaced) error {
			return nil
		})},
		"two reactions on a topic that do not decode": {sagas.On("raw", ofMessage, notDecoded), sagas.Timeout("raw", notDecoded)},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			_, err := sagas.Define(sagas.Config{Store: s.Store, Marshaler: marshaler}, reactions...)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		})
	}
	t.Run("refuses a state whose type has no usable name, and names the setting that sets one", func(t *testing.T) {
		t.Parallel()
		_, err := sagas.Define[struct{ A int }](sagas.Config{Store: s.Store})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "TypeName")
		saga, err := sagas.Define(sagas.Config{Store: s.Store, TypeName: func(string) string { return "named" }},
			sagas.On("a", ofPlaced, func(*sagas.Context[struct{ A int }], orderPlaced) error { return nil }))
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, saga.Topics())
	})
	t.Run("refuses a state that is not a struct", func(t *testing.T) {
		t.Parallel()
		type text string
		_, err := sagas.Define[text](sagas.Config{Store: s.Store})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
	t.Run("refuses invalid settings", func(t *testing.T) {
		t.Parallel()
		for _, cfg := range []sagas.Config{{}, {Store: s.Store, ConflictDelay: -1}} {
			_, err := sagas.Define[order](cfg)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
	})
}
