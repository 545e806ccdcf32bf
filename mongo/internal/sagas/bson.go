package sagas

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func where(field string, value any) bson.D { return bson.D{{Key: field, Value: value}} }

func exists(field string) bson.D { return where(field, bson.D{{Key: "$exists", Value: true}}) }

func in(field string, values any) bson.D { return where(field, bson.D{{Key: "$in", Value: values}}) }

func ascending(fields ...string) bson.D {
	keys := make(bson.D, len(fields))
	for i, field := range fields {
		keys[i] = bson.E{Key: field, Value: 1}
	}
	return keys
}

// literally makes the server read a user's values as they are, not as expressions.
func literally(document bson.D) bson.D { return bson.D{{Key: "$literal", Value: document}} }

// merged is a document of the fields of all, in their order.
func merged(documents ...bson.D) bson.D { return bson.D{{Key: "$mergeObjects", Value: documents}} }

// inTime is an expression for the server's current time plus d.
func inTime(d time.Duration) bson.D {
	return bson.D{{Key: "$dateAdd", Value: bson.D{
		{Key: "startDate", Value: "$$NOW"}, {Key: "unit", Value: "millisecond"},
		{Key: "amount", Value: (d + time.Millisecond - 1).Milliseconds()},
	}}}
}

func given(condition, then, otherwise any) bson.D {
	return bson.D{{Key: "$cond", Value: bson.A{condition, then, otherwise}}}
}

func plus(field string, n any) bson.D { return bson.D{{Key: "$add", Value: bson.A{"$" + field, n}}} }

// uuid is an id as the store writes it.
func uuid(id [16]byte) bson.Binary { return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]} }

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

func findAll[T any](ctx context.Context, from *mongo.Collection, filter bson.D, opts ...options.Lister[options.FindOptions]) ([]T, error) {
	cursor, err := from.Find(ctx, filter, opts...)
	if err != nil {
		return nil, err
	}
	var found []T
	err = cursor.All(ctx, &found)
	return found, err
}

// first selects at most n documents, in the given order, with only the given fields.
func first(n int, order bson.D, fields ...string) *options.FindOptionsBuilder {
	return options.Find().SetLimit(int64(n)).SetBatchSize(int32(min(n, 1<<20))).SetSort(order).SetProjection(ascending(fields...))
}

// violates reports whether err says that a document has the keys of another one in a unique index
// that begins with the field. An index of the user's own is another one.
func violates(err error, field string) bool {
	if !mongo.IsDuplicateKeyError(err) {
		return false
	}
	var command mongo.CommandError
	if !errors.As(err, &command) {
		return false
	}
	var violated struct {
		Keys bson.D `bson:"keyPattern"`
	}
	if bson.Unmarshal(command.Raw, &violated) != nil || len(violated.Keys) == 0 {
		return strings.Contains(err.Error(), " dup key: { "+field+": ")
	}
	return len(violated.Keys) == 1 && violated.Keys[0].Key == field
}

// lacksHint reports whether a command named an index that does not exist.
func lacksHint(err error) bool {
	var command mongo.CommandError
	return errors.As(err, &command) && strings.Contains(command.Message, "hint provided does not correspond to an existing index")
}
