package mongo

import (
	"context"
	"encoding/binary"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
)

// insertAtOnce bounds the bytes of the documents in one command, because a command is itself a
// document. A larger document has a command of its own.
const insertAtOnce = 8 << 20

// insertRaw inserts documents that are already encoded, within a transaction. The driver's
// InsertMany would decode and encode each of them again, which takes longer than all other work
// of an append in this process.
func (s *Store) insertRaw(ctx context.Context, documents []any) error {
	for len(documents) > 0 {
		n, size := 1, len(documents[0].(bson.Raw))
		for n < len(documents) && size+len(documents[n].(bson.Raw)) <= insertAtOnce {
			size += len(documents[n].(bson.Raw))
			n++
		}
		if err := s.insertSome(ctx, documents[:n], size); err != nil {
			return err
		}
		documents = documents[n:]
	}
	return nil
}

func (s *Store) insertSome(ctx context.Context, documents []any, size int) error {
	reply, err := s.db.RunCommand(ctx, insertCommand(s.records.Name(), documents, size)).Raw()
	if err != nil {
		return err
	}
	var failed struct {
		Errors []struct {
			Code    int32  `bson:"code"`
			Message string `bson:"errmsg"`
		} `bson:"writeErrors"`
	}
	if err := bson.Unmarshal(reply, &failed); err != nil || len(failed.Errors) == 0 {
		return err
	}
	return driver.CommandError{Code: failed.Errors[0].Code, Message: failed.Errors[0].Message}
}

// insertCommand is {insert: collection, documents: [...]}.
func insertCommand(collection string, documents []any, size int) bson.Raw {
	const perDocument = 16 // the type, the index as text, and the final zero
	command := make([]byte, 4, size+perDocument*len(documents)+len(collection)+64)
	command = append(append(command, byte(bson.TypeString)), "insert\x00"...)
	command = binary.LittleEndian.AppendUint32(command, uint32(len(collection)+1))
	command = append(append(command, collection...), 0)
	command = append(append(command, byte(bson.TypeArray)), "documents\x00"...)
	list := len(command)
	command = append(command, 0, 0, 0, 0)
	for i, d := range documents {
		command = strconv.AppendInt(append(command, byte(bson.TypeEmbeddedDocument)), int64(i), 10)
		command = append(append(command, 0), d.(bson.Raw)...)
	}
	command = append(command, 0)
	binary.LittleEndian.PutUint32(command[list:], uint32(len(command)-list))
	command = append(command, 0)
	binary.LittleEndian.PutUint32(command, uint32(len(command)))
	return command
}
