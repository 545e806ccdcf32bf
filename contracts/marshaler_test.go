package contracts_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
)

// arrive is a message as a broker delivers it.
func arrive(name, version, payload string) *message.Message {
	msg := message.NewMessage("m-1", []byte(payload))
	msg.Metadata = message.Metadata{contracts.MetadataName: name, contracts.MetadataVersion: version}
	return msg
}

func TestMarshaler_Marshal(t *testing.T) {
	t.Parallel()
	marshaler := shop(t).Marshaler(contracts.MarshalerConfig{})
	t.Run("writes what Watermill's JSONMarshaler writes, with the contract in the metadata", func(t *testing.T) {
		t.Parallel()
		event := OrderPlaced{ID: "<1>", Cents: 1999}
		want, err := cqrs.JSONMarshaler{}.Marshal(event)
		require.NoError(t, err)
		for _, value := range []any{event, &event} {
			msg, err := marshaler.Marshal(value)
			require.NoError(t, err)
			require.Equal(t, string(want.Payload), string(msg.Payload))
			require.Equal(t, message.Metadata{"outmill_contract": orderPlaced, "outmill_contract_version": "3"}, msg.Metadata)
			require.Len(t, msg.UUID, 36)
			require.Equal(t, orderPlaced, marshaler.Name(value))
			require.Equal(t, orderPlaced, marshaler.NameFromMessage(msg))
		}
	})
	t.Run("takes the UUID from the configuration", func(t *testing.T) {
		t.Parallel()
		m := shop(t).Marshaler(contracts.MarshalerConfig{NewUUID: func() string { return "mine" }})
		msg, err := m.Marshal(OrderCancelled{ID: "1"})
		require.NoError(t, err)
		require.Equal(t, "mine", msg.UUID)
	})
	t.Run("sets the time that the event itself knows", func(t *testing.T) {
		t.Parallel()
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		msg, err := marshaler.Marshal(OrderPlaced{At: at})
		require.NoError(t, err)
		occurred, ok := outmill.OccurredAt(msg)
		require.True(t, ok)
		require.Equal(t, at, occurred)
	})
	t.Run("encodes and checks a value by the methods of its pointer", func(t *testing.T) {
		t.Parallel()
		for _, coupon := range []any{Coupon{Code{"7"}}, &Coupon{Code{"7"}}} {
			msg, err := marshaler.Marshal(coupon)
			require.NoError(t, err)
			require.JSONEq(t, `{"code":"code-7"}`, string(msg.Payload))
			var back Coupon
			require.NoError(t, marshaler.Unmarshal(msg, &back))
			require.Equal(t, Coupon{Code{"7"}}, back)
		}
		for _, empty := range []any{Coupon{}, &Coupon{}} {
			_, err := marshaler.Marshal(empty)
			require.ErrorIs(t, err, contracts.ErrInvalidMessage)
			require.EqualError(t, err,
				"contracts: invalid message: coupons.coupon version 1: its Validate method returned an error: the code is empty")
		}
	})
	t.Run("refuses what Validate refuses, with that error", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []any{OrderPlaced{Cents: -1}, &OrderPlaced{Cents: -1}} {
			msg, err := marshaler.Marshal(bad)
			require.Nil(t, msg)
			require.ErrorIs(t, err, contracts.ErrInvalidMessage)
			require.ErrorIs(t, err, errNegative)
			require.False(t, outmill.IsPermanent(err))
			var refused *contracts.MessageError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, orderPlaced, refused.Name)
			require.Equal(t, 3, refused.Version)
		}
	})
	t.Run("refuses nil, and types that are not registered", func(t *testing.T) {
		t.Parallel()
		_, err := marshaler.Marshal((*OrderPlaced)(nil))
		require.ErrorIs(t, err, contracts.ErrInvalidMessage)
		for _, value := range []any{nil, 1, OrderPlacedV1{}, Page[int]{}, func() {}} {
			_, err := marshaler.Marshal(value)
			require.ErrorIs(t, err, contracts.ErrUnknownContract)
			require.NotEqual(t, marshaler.NameFromMessage(message.NewMessage("", nil)), marshaler.Name(value))
			require.Contains(t, marshaler.Name(value), "is not registered")
			_, err = contracts.NewRegistry(contracts.Of[OrderPlaced](marshaler.Name(value), 1))
			require.ErrorIs(t, err, contracts.ErrInvalidContract, "the name could be that of a contract")
		}
	})
}

func TestMarshaler_Unmarshal(t *testing.T) {
	t.Parallel()
	marshaler := shop(t).Marshaler(contracts.MarshalerConfig{})
	t.Run("reads each version as the current one", func(t *testing.T) {
		t.Parallel()
		for version, payload := range map[string]string{
			"1": `{"id":"7","total":19.99}`,
			"2": `{"id":"7","cents":1999}`,
			"3": `{"id":"7","cents":1999,"currency":"EUR"}`,
		} {
			got := OrderPlaced{Currency: "from before"}
			require.NoError(t, marshaler.Unmarshal(arrive(orderPlaced, version, payload), &got))
			require.Equal(t, OrderPlaced{ID: "7", Cents: 1999, Currency: "EUR"}, got)
		}
	})
	t.Run("reads what the same type is in another version, and what no type is any more", func(t *testing.T) {
		t.Parallel()
		m := newRegistry(t, contracts.Of[OrderPlaced](orderPlaced, 5,
			contracts.UpcastFrom(2, func(old map[string]any) (*OrderPlaced, error) { return &OrderPlaced{ID: old["number"].(string)}, nil }),
			contracts.UpcastFrom(4, func(old OrderPlaced) (OrderPlaced, error) { old.Currency += "!"; return old, nil }),
		)).Marshaler(contracts.MarshalerConfig{})
		var got OrderPlaced
		require.NoError(t, m.Unmarshal(arrive(orderPlaced, "2", `{"number":"7"}`), &got))
		require.Equal(t, OrderPlaced{ID: "7", Currency: "!"}, got)
		require.NoError(t, m.Unmarshal(arrive(orderPlaced, "4", `{"currency":"EUR"}`), &got))
		require.Equal(t, OrderPlaced{Currency: "EUR!"}, got)
		err := m.Unmarshal(arrive(orderPlaced, "3", `{}`), &got)
		require.ErrorContains(t, err, "has no version 3 in this program, which knows 2, 4, 5: add contracts.UpcastFrom(3, …)")
	})
	t.Run("refuses unknown contracts for good, and names them", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			msg  *message.Message
			want string
		}{
			{arrive("", "1", "{}"), `no metadata "outmill_contract"`},
			{arrive("orders.lost", "1", "{}"), `"orders.lost" is not registered`},
			{arrive(strings.Repeat("x", 10_000), "1", "{}"), `xxx…" is not registered`},
			{arrive(orderPlaced, "4", "{}"), "has no version 4"},
			{arrive(orderPlaced, "", "{}"), `"outmill_contract_version" is ""`},
			{arrive(orderPlaced, "two", "{}"), `is "two", want a number from 1 up`},
			{arrive(orderPlaced, "-1", "{}"), `is "-1", want a number from 1 up`},
			{arrive(orderPlaced, "99999999999", "{}"), `want a number from 1 up`},
			{&message.Message{}, `no metadata "outmill_contract"`},
		} {
			err := marshaler.Unmarshal(c.msg, &OrderPlaced{})
			require.ErrorIs(t, err, contracts.ErrUnknownContract)
			require.ErrorContains(t, err, c.want)
			require.True(t, outmill.IsPermanent(err))
			require.Less(t, len(err.Error()), 500)
			_, err = marshaler.RefuseUnknown(message.PassthroughHandler)(c.msg)
			require.ErrorContains(t, err, c.want)
			require.True(t, outmill.IsPermanent(err))
		}
	})
	t.Run("refuses payloads that do not fit for good", func(t *testing.T) {
		t.Parallel()
		for want, target := range map[string]any{
			"it is decoded into contracts_test.OrderPlaced: want *contracts_test.OrderPlaced": OrderPlaced{},
			"it is decoded into *contracts_test.Coupon":                                       &Coupon{},
			"it is decoded into <nil>":                                                        nil,
			"nil pointer":                                                                     (*OrderPlaced)(nil),
			`field "cents": a JSON string does not fit int`:                                   &OrderPlaced{},
		} {
			err := marshaler.Unmarshal(arrive(orderPlaced, "3", `{"cents":"1"}`), target)
			require.ErrorIs(t, err, contracts.ErrUnreadableMessage)
			require.ErrorContains(t, err, want)
			require.True(t, outmill.IsPermanent(err))
		}
		require.ErrorIs(t, marshaler.Unmarshal(arrive(orderPlaced, "1", `{`), &OrderPlaced{}), contracts.ErrUnreadableMessage)
	})
	t.Run("reads what Watermill's own marshaler wrote", func(t *testing.T) {
		t.Parallel()
		watermills := cqrs.JSONMarshaler{GenerateName: func(any) string { return "orders.OrderCancelled" }}
		msg, err := watermills.Marshal(OrderCancelled{ID: "7"})
		require.NoError(t, err)
		require.Equal(t, "orders.order-cancelled", marshaler.NameFromMessage(msg))
		var got OrderCancelled
		require.NoError(t, marshaler.Unmarshal(msg, &got))
		require.Equal(t, "7", got.ID)
		passed, err := marshaler.RefuseUnknown(message.PassthroughHandler)(msg)
		require.NoError(t, err)
		require.Len(t, passed, 1)
		msg.Metadata.Set("name", "orders.OrderLost")
		require.ErrorIs(t, marshaler.Unmarshal(msg, &got), contracts.ErrUnknownContract)
	})
}

func TestUpcastFrom(t *testing.T) {
	t.Parallel()
	failing := func(err error) *contracts.Marshaler {
		return newRegistry(t, contracts.Of[OrderPlaced](orderPlaced, 2,
			contracts.UpcastFrom(1, func(OrderPlacedV1) (*OrderPlaced, error) { return nil, err }),
		)).Marshaler(contracts.MarshalerConfig{})
	}
	msg := arrive(orderPlaced, "1", "{}")
	t.Run("has an error of the upcaster be permanent", func(t *testing.T) {
		t.Parallel()
		err := failing(errNegative).Unmarshal(msg, &OrderPlaced{})
		require.ErrorIs(t, err, contracts.ErrUnreadableMessage)
		require.ErrorIs(t, err, errNegative)
		require.True(t, outmill.IsPermanent(err))
		require.EqualError(t, err, "contracts: unreadable message: orders.order-placed version 1: cents are negative")
	})
	t.Run("lets the upcaster ask for another attempt", func(t *testing.T) {
		t.Parallel()
		err := failing(outmill.RetryAfter(errNegative, time.Second)).Unmarshal(msg, &OrderPlaced{})
		require.False(t, outmill.IsPermanent(err))
		delay, ok := outmill.RetryAfterDelay(err)
		require.True(t, ok)
		require.Equal(t, time.Second, delay)
	})
	t.Run("refuses an upcaster that returns nil", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, failing(nil).Unmarshal(msg, &OrderPlaced{}), "the upcaster returned nil")
	})
}

func TestJSON(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	t.Run("keeps values out of the errors of decoding", func(t *testing.T) {
		t.Parallel()
		type target struct {
			Number int            `json:"number"`
			Time   time.Time      `json:"time"`
			Bytes  []byte         `json:"bytes"`
			Quoted int            `json:"quoted,string"`
			Code   Code           `json:"code"`
			Map    map[string]int `json:"map"`
			Keys   map[int]int    `json:"keys"`
		}
		for _, payload := range []string{
			`{"number":"s3cret"}`, `{"number":123456789012.5}`, `{"time":"s3cret"}`, `{"bytes":"s3cret!"}`, `{"quoted":"s3cret"}`,
			`{"code":"s3cret"}`, `{"map":{"s3cret":"x"}}`, `{"keys":{"s3cret":1}}`, `{"number":s3cret}`, `"s3cret"`, `{"s3cret`, ``, `[1]`,
			`{"number":123456789012345678901234567890}`,
		} {
			err := contracts.JSON{}.Unmarshal([]byte(payload), &target{})
			require.ErrorContains(t, err, "decode from JSON: ", payload)
			require.NotContains(t, err.Error(), secret)
			require.NotContains(t, err.Error(), "123456789012")
		}
	})
	t.Run("keeps values out of the errors of encoding", func(t *testing.T) {
		t.Parallel()
		tooLate := struct{ T time.Time }{time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC)}
		for _, value := range []any{math.NaN(), refusing(secret), make(chan int), numbers{secret}, tooLate} {
			_, err := contracts.JSON{}.Marshal(value)
			require.ErrorContains(t, err, "encode as JSON: ")
			require.NotContains(t, err.Error(), secret)
		}
	})
}

// refusing has a MarshalText that quotes its value.
type refusing string

func (r refusing) MarshalText() ([]byte, error) { return nil, &time.ParseError{Value: string(r)} }

type numbers struct{ Number json.Number }
