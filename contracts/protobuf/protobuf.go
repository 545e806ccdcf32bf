// Package protobuf encodes the payloads of contracts as Protocol Buffers.
//
//	registry, err := contracts.NewRegistry(
//		protobuf.Of[orderspb.OrderPlaced]("orders.order-placed", 2, protobuf.UpcastFrom(1, fromV1)),
//		contracts.Of[OrderCancelled]("orders.order-cancelled", 1), // JSON
//	)
//
// Give buses pointers, as usual with Protocol Buffers. This option reads an older version
// that was JSON:
//
//	contracts.UpcastFrom(1, fromJSON, contracts.EncodedBy(contracts.JSON{}))
package protobuf

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/outmill/outmill/contracts"
)

// Of is contracts.Of for a generated type, with payloads in the wire format. It does not
// compile if the type is not a proto.Message.
func Of[T any, Pointer interface {
	*T
	proto.Message
}](name string, version int, options ...contracts.Option) contracts.Contract {
	encoded := append([]contracts.Option{contracts.EncodedBy(Codec{})}, options...)
	return contracts.Of[T](name, version, encoded...)
}

// UpcastFrom is contracts.UpcastFrom between two generated types, with payloads in the wire
// format.
func UpcastFrom[Old, New proto.Message](version int, convert func(Old) (New, error)) contracts.Option {
	return contracts.UpcastFrom(version, convert, contracts.EncodedBy(Codec{}))
}

var (
	_ contracts.Codec  = Codec{}
	_ contracts.Setter = Codec{}
)

// Codec is the wire format of Protocol Buffers, by google.golang.org/protobuf.
type Codec struct{}

// Marshal implements contracts.Codec.
func (Codec) Marshal(v any) ([]byte, error) {
	msg, ok := v.(proto.Message)
	if !ok {
		return nil, notMessage(v)
	}
	return proto.Marshal(msg)
}

// Unmarshal implements contracts.Codec.
func (Codec) Unmarshal(data []byte, v any) error {
	msg, ok := v.(proto.Message)
	if !ok {
		return notMessage(v)
	}
	return proto.Unmarshal(data, msg)
}

// ContentType implements contracts.Codec.
func (Codec) ContentType() string { return "application/protobuf" }

// Set implements contracts.Setter: generated types must not be copied by assignment.
func (Codec) Set(dst, src any) error {
	to, ok := dst.(proto.Message)
	if !ok {
		return notMessage(dst)
	}
	from, ok := src.(proto.Message)
	if !ok {
		return notMessage(src)
	}
	proto.Reset(to)
	proto.Merge(to, from)
	return nil
}

func notMessage(v any) error {
	return fmt.Errorf("type %T is not a proto.Message: register a generated type with protobuf.Of", v)
}
