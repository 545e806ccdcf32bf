package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/mongoerr"
)

// oldestServer is the first major version of MongoDB that has all features that the store uses.
const oldestServer = 5

// A server that speaks MongoDB's protocol may lack features that the store uses. When Ensure
// makes a schema, it tries these features, and refuses such a server, so that the first append or
// claim does not fail instead.

// refusesIndex are codes of servers that do not know an option of an index: FailedToParse,
// CannotCreateIndex, CommandNotSupported, InvalidIndexSpecificationOption, NotImplemented, and
// Amazon's FeatureNotSupported.
var refusesIndex = []int{9, 67, 115, 197, 238, 303}

// lacking explains an error by which the server says that it lacks a feature. It returns other
// errors unchanged.
func lacking(what string, err error) error {
	var said driver.ServerError
	if err == nil || !errors.As(err, &said) || repeatable(err) || mongoerr.HasLabel(err, mongoerr.LabelUnknown) ||
		mongoerr.HasCode(err, codeUnauthorized) || mongoerr.HasCode(err, mongoerr.CodeMaxTimeExpired) {
		return err
	}
	return fmt.Errorf("%w: the server has no %s: the store needs MongoDB %d.0 or later as a replica set; Amazon DocumentDB up to 5.0 and "+
		"Azure Cosmos DB for MongoDB by request units lack this (docs/mongodb.md): %w",
		errors.ErrUnsupported, what, oldestServer, err)
}

// checkVersion refuses a server that is too old.
func (s *Store) checkVersion(ctx context.Context) error {
	var info struct {
		Version string  `bson:"version"`
		Array   []int32 `bson:"versionArray"`
	}
	err := s.db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	if said := driver.ServerError(nil); errors.As(err, &said) && !repeatable(err) {
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

// checkQueries tries the kinds of queries that claims use.
func (s *Store) checkQueries(ctx context.Context) error {
	none := where("_id", "none")
	_, err := aggregateAll[bson.D](ctx, s.meta, union(s.meta,
		driver.Pipeline{{{Key: "$match", Value: append(none, expr(bson.D{{Key: "$gt", Value: bson.A{inTime(0), "$seen_at"}}}))}},
			{{Key: "$unset", Value: "x"}}},
		driver.Pipeline{
			{{Key: "$match", Value: none}},
			{{Key: "$lookup", Value: bson.D{
				{Key: "from", Value: s.meta.Name()}, {Key: "localField", Value: "_id"}, {Key: "foreignField", Value: "_id"},
				{Key: "pipeline", Value: driver.Pipeline{{{Key: "$limit", Value: 1}}}}, {Key: "as", Value: "x"},
			}}},
		}))
	if err = lacking("aggregation with $expr, $dateAdd, $$NOW, $unionWith and $lookup", err); err != nil {
		return err
	}
	_, err = s.meta.UpdateMany(ctx, none, pipeline(bson.D{{Key: "x", Value: "$$NOW"}}, "y"))
	return lacking("updates by an aggregation pipeline", err)
}

// errProbed aborts the transaction that checkTransactions tries.
var errProbed = errors.New("probed")

// checkTransactions tries a transaction that writes to two collections, as one with the user's
// own documents does, and aborts it.
func (s *Store) checkTransactions(ctx context.Context) error {
	if s.config.WithoutTransactions {
		return nil
	}
	err := again(ctx, func() error {
		return s.once(ctx, func(ctx context.Context) error {
			probe := bson.D{{Key: "_id", Value: bson.NewObjectID()}}
			for _, in := range []*driver.Collection{s.locks, s.workers} {
				if _, err := in.InsertOne(ctx, probe); err != nil {
					return err
				}
			}
			return errProbed
		})
	})
	switch {
	case errors.Is(err, errProbed):
		return nil
	case mongoerr.HasCode(err, codeIllegalOperation):
		return fmt.Errorf("%w: the server has no transactions: make it a replica set, one of a single node will do (mongod --replSet rs0, and "+
			"rs.initiate() once), or set Config.WithoutTransactions: %w",
			errors.ErrUnsupported, err)
	}
	return lacking("transactions over several collections", err)
}
