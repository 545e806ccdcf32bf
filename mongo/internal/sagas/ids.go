package sagas

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// sagaID is the id of a saga. The store writes it as a UUID of subtype 4. Documents of NServiceBus
// may have the subtype 3, with the bytes in the order of .NET's Guid, which was the default of
// MongoDB's driver for .NET. A change leaves the id in the document as it is.
type sagaID [16]byte

// UnmarshalBSONValue implements bson.ValueUnmarshaler.
func (id *sagaID) UnmarshalBSONValue(kind byte, data []byte) error {
	var b bson.Binary
	if err := bson.UnmarshalValue(bson.Type(kind), data, &b); err != nil {
		return err
	}
	if len(b.Data) != len(id) {
		return fmt.Errorf("the %s of a saga's document has %d bytes: want a UUID", fieldID, len(b.Data))
	}
	copy(id[:], b.Data)
	if b.Subtype == bson.TypeBinaryUUIDOld {
		*id = id.ofGuid()
	}
	return nil
}

// ofGuid turns the bytes of a Guid into those of the UUID that .NET prints, and back.
func (id sagaID) ofGuid() sagaID {
	for _, part := range [][]byte{id[0:4], id[4:6], id[6:8]} {
		slices.Reverse(part)
	}
	return id
}

// kindOf names the BSON type of a value, and the subtype of a binary one.
func kindOf(value bson.RawValue) string {
	if subtype, _, is := value.BinaryOK(); is {
		return fmt.Sprintf("binary of subtype %d", subtype)
	}
	return value.Type.String()
}

func (id sagaID) binary() bson.Binary { return uuid(id) }

// stored are the values of _id that a document of this saga may have.
func (id sagaID) stored() bson.A {
	guid := id.ofGuid()
	return bson.A{id.binary(), bson.Binary{Subtype: bson.TypeBinaryUUIDOld, Data: guid[:]}}
}
