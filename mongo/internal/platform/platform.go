// Package platform finds out whether a server has the features that the store uses.
package platform

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/mongoerr"
)

// oldestServer is the first major version of MongoDB that has all features that the store uses.
const oldestServer = 5

// A server that speaks MongoDB's protocol may lack features that the store uses. When Ensure
// makes a schema, it tries these features, and refuses such a server, so that the first append or
// claim does not fail instead.

// Lacking explains an error by which the server says that it lacks a feature. It returns other
// errors unchanged.
func Lacking(what string, err error) error {
	var said mongo.ServerError
	if err == nil || !errors.As(err, &said) || passes(err) || mongoerr.HasLabel(err, mongoerr.LabelUnknown) ||
		mongoerr.HasCode(err, mongoerr.CodeUnauthorized) || mongoerr.HasCode(err, mongoerr.CodeMaxTimeExpired) {
		return err
	}
	return fmt.Errorf("%w: the server has no %s: the store needs MongoDB %d.0 or later as a replica set; Amazon DocumentDB up to 5.0 and "+
		"Azure Cosmos DB for MongoDB by request units lack this (docs/mongodb.md): %w",
		errors.ErrUnsupported, what, oldestServer, err)
}

// CheckVersion refuses a server that is too old.
func CheckVersion(ctx context.Context, db *mongo.Database) error {
	var info struct {
		Version string  `bson:"version"`
		Array   []int32 `bson:"versionArray"`
	}
	err := db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	if said := mongo.ServerError(nil); errors.As(err, &said) && !passes(err) {
		// A client with a strict API version may not ask. Servers with such versions are new
		// enough.
		return nil
	}
	if err != nil {
		return err
	}
	if len(info.Array) > 0 && info.Array[0] < oldestServer {
		return fmt.Errorf("%w: the server is MongoDB %s: the store needs %d.0 or later", errors.ErrUnsupported, info.Version, oldestServer)
	}
	return nil
}

// CheckQueries tries the kinds of queries that claims use.
func CheckQueries(ctx context.Context, meta *mongo.Collection) error {
	none, id := bson.D{{Key: "_id", Value: "none"}}, bson.E{Key: "_id", Value: "none"}
	later := bson.D{{Key: "$dateAdd", Value: bson.D{
		{Key: "startDate", Value: "$$NOW"}, {Key: "unit", Value: "millisecond"}, {Key: "amount", Value: 1},
	}}}
	cursor, err := meta.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{id, {Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{later, "$seen_at"}}}}}}},
		{{Key: "$unset", Value: "x"}},
		{{Key: "$unionWith", Value: bson.D{{Key: "coll", Value: meta.Name()}, {Key: "pipeline", Value: mongo.Pipeline{
			{{Key: "$match", Value: none}},
			{{Key: "$lookup", Value: bson.D{
				{Key: "from", Value: meta.Name()}, {Key: "let", Value: bson.D{{Key: "at", Value: "$_id"}}},
				{Key: "pipeline", Value: mongo.Pipeline{{{Key: "$limit", Value: 1}}}}, {Key: "as", Value: "x"},
			}}},
		}}}}},
	})
	if err == nil {
		err = cursor.Close(ctx)
	}
	if err = Lacking("aggregation with $expr, $dateAdd, $$NOW, $unionWith and $lookup", err); err != nil {
		return err
	}
	_, err = meta.UpdateMany(ctx, none, mongo.Pipeline{
		{{Key: "$set", Value: bson.D{{Key: "x", Value: "$$NOW"}}}}, {{Key: "$unset", Value: "y"}},
	})
	return Lacking("updates by an aggregation pipeline", err)
}

// errProbed aborts the transaction that CheckTransactions tries.
var errProbed = errors.New("probed")

// CheckTransactions tries a transaction that writes to two collections, as one with the user's
// own documents does, and aborts it. The function run runs a transaction, and repeats it.
func CheckTransactions(run func(fn func(ctx context.Context) error) error, collections ...*mongo.Collection) error {
	err := run(func(ctx context.Context) error {
		probe := bson.D{{Key: "_id", Value: bson.NewObjectID()}}
		for _, in := range collections {
			if _, err := in.InsertOne(ctx, probe); err != nil {
				return err
			}
		}
		return errProbed
	})
	switch {
	case errors.Is(err, errProbed):
		return nil
	case mongoerr.HasCode(err, mongoerr.CodeIllegalOperation):
		return fmt.Errorf("%w: the server has no transactions: make it a replica set, one of a single node will do (mongod --replSet rs0, and "+
			"rs.initiate() once): %w", errors.ErrUnsupported, err)
	}
	return Lacking("transactions over several collections", err)
}

// passes reports that the server has said nothing about its features.
func passes(err error) bool {
	return mongoerr.Transient(err) || mongoerr.Interrupted(err) || mongoerr.HasCode(err, mongoerr.CodeWriteConflict) ||
		mongoerr.HasCode(err, mongoerr.CodeNoSuchTransaction)
}
