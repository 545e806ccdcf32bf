package protobuf_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
	"github.com/outmill/outmill/contracts/protobuf"
)

const name = "modules.mixin"

// versions are a contract that was JSON, then one generated type, and now another.
func versions(t *testing.T) *contracts.Marshaler {
	t.Helper()
	registry, err := contracts.NewRegistry(protobuf.Of[apipb.Mixin](name, 3,
		contracts.UpcastFrom(1, func(old map[string]string) (*wrapperspb.StringValue, error) {
			return wrapperspb.String(old["name"]), nil
		}, contracts.EncodedBy(contracts.JSON{})),
		protobuf.UpcastFrom(2, func(old *wrapperspb.StringValue) (*apipb.Mixin, error) {
			if old.GetValue() == "" {
				return nil, errors.New("the name is empty")
			}
			return &apipb.Mixin{Name: old.GetValue(), Root: "/"}, nil
		}),
	))
	require.NoError(t, err)
	return registry.Marshaler(contracts.MarshalerConfig{})
}

// written is a message as an older program has written it.
func written[T any](t *testing.T, contract contracts.Contract, value T) func(into any) error {
	t.Helper()
	registry, err := contracts.NewRegistry(contract)
	require.NoError(t, err)
	msg, err := registry.Marshaler(contracts.MarshalerConfig{}).Marshal(value)
	require.NoError(t, err)
	return func(into any) error { return versions(t).Unmarshal(msg, into) }
}

func TestOf(t *testing.T) {
	t.Parallel()
	t.Run("writes what Watermill's ProtoMarshaler writes, and reads it", func(t *testing.T) {
		t.Parallel()
		event := &apipb.Mixin{Name: "a", Root: "/b"}
		msg, err := versions(t).Marshal(event)
		require.NoError(t, err)
		want, err := cqrs.ProtoMarshaler{}.Marshal(event)
		require.NoError(t, err)
		require.Equal(t, want.Payload, msg.Payload)
		require.Equal(t, name, msg.Metadata.Get(contracts.MetadataName))
		var got apipb.Mixin
		require.NoError(t, versions(t).Unmarshal(msg, &got))
		require.True(t, proto.Equal(event, &got))
	})
	t.Run("says that payloads are Protocol Buffers", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "application/protobuf", protobuf.Of[apipb.Mixin](name, 1).ContentType())
	})
	t.Run("refuses payloads that do not fit for good", func(t *testing.T) {
		t.Parallel()
		msg, err := versions(t).Marshal(&apipb.Mixin{})
		require.NoError(t, err)
		msg.Payload = []byte("\xffs3cret")
		err = versions(t).Unmarshal(msg, &apipb.Mixin{})
		require.ErrorIs(t, err, contracts.ErrUnreadableMessage)
		require.True(t, outmill.IsPermanent(err))
		require.NotContains(t, err.Error(), "s3cret")
	})
}

func TestUpcastFrom(t *testing.T) {
	t.Parallel()
	want := &apipb.Mixin{Name: "a", Root: "/"}
	t.Run("reads an older generated type, whatever was in the value before", func(t *testing.T) {
		t.Parallel()
		got := &apipb.Mixin{Name: "before", Root: "/before"}
		require.NoError(t, written(t, protobuf.Of[wrapperspb.StringValue](name, 2), wrapperspb.String("a"))(got))
		require.True(t, proto.Equal(want, got), fmt.Sprint(got))
	})
	t.Run("reads a version that was JSON", func(t *testing.T) {
		t.Parallel()
		var got apipb.Mixin
		require.NoError(t, written(t, contracts.Of[map[string]string](name, 1), map[string]string{"name": "a"})(&got))
		require.True(t, proto.Equal(want, &got))
	})
	t.Run("refuses an older value that the upcaster refuses", func(t *testing.T) {
		t.Parallel()
		err := written(t, protobuf.Of[wrapperspb.StringValue](name, 2), wrapperspb.String(""))(&apipb.Mixin{})
		require.ErrorContains(t, err, "modules.mixin version 2: the name is empty")
	})
}

func TestCodec(t *testing.T) {
	t.Parallel()
	t.Run("refuses what is no message", func(t *testing.T) {
		t.Parallel()
		registry, err := contracts.NewRegistry(contracts.Of[string]("text", 1, contracts.EncodedBy(protobuf.Codec{})))
		require.NoError(t, err)
		_, err = registry.Encode("x")
		require.ErrorIs(t, err, contracts.ErrInvalidMessage)
		require.ErrorContains(t, err, "*string is not a proto.Message")
		require.ErrorContains(t, registry.Decode("text", 1, nil, new(string)), "*string is not a proto.Message")
		codec := protobuf.Codec{}
		require.Error(t, codec.Set(new(string), &apipb.Mixin{}))
		require.Error(t, codec.Set(&apipb.Mixin{}, new(string)))
	})
}
