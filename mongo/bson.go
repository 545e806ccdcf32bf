package mongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Short names for common BSON expressions.

func in(field string, values any) bson.D {
	return bson.D{{Key: field, Value: bson.D{{Key: "$in", Value: values}}}}
}

func either(filters ...bson.D) bson.D {
	if len(filters) == 1 {
		return filters[0]
	}
	return bson.D{{Key: "$or", Value: filters}}
}

func set(fields bson.D) bson.D { return bson.D{{Key: "$set", Value: fields}} }

// pipeline is an update with expressions, which read the fields as they were before the update.
func pipeline(change bson.D, without ...string) driver.Pipeline {
	stages := driver.Pipeline{{{Key: "$set", Value: change}}}
	if len(without) > 0 {
		stages = append(stages, unset(without...))
	}
	return stages
}

func unset(fields ...string) bson.D { return bson.D{{Key: "$unset", Value: fields}} }

// literal makes the server read a user's text as text, not as an expression.
func literal(text string) bson.D { return bson.D{{Key: "$literal", Value: text}} }

// inTime is an expression for the server's current time plus d.
func inTime(d time.Duration) bson.D {
	return bson.D{{Key: "$dateAdd", Value: bson.D{
		{Key: "startDate", Value: "$$NOW"}, {Key: "unit", Value: "millisecond"}, {Key: "amount", Value: ceil(d).Milliseconds()},
	}}}
}

// hasPassed is a condition by the server's clock. A missing time has not passed, although the
// server sorts a missing value before all times.
func hasPassed(field string) bson.D {
	return bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$gt", Value: bson.A{"$" + field, nil}}}, bson.D{{Key: "$lte", Value: bson.A{"$" + field, "$$NOW"}}},
	}}}
}

func given(condition, then, otherwise any) bson.D {
	return bson.D{{Key: "$cond", Value: bson.A{condition, then, otherwise}}}
}

func plus(field string, n any) bson.D { return bson.D{{Key: "$add", Value: bson.A{"$" + field, n}}} }

func expr(condition any) bson.E { return bson.E{Key: "$expr", Value: condition} }

// oneBatch lets the server answer in one round trip, unless the answer is too large.
const oneBatch = 1 << 20

func findAll[T any](ctx context.Context, from *driver.Collection, filter bson.D, opts ...options.Lister[options.FindOptions]) ([]T, error) {
	opts = append([]options.Lister[options.FindOptions]{options.Find().SetBatchSize(oneBatch)}, opts...)
	cursor, err := from.Find(ctx, filter, opts...)
	if err != nil {
		return nil, err
	}
	var found []T
	err = cursor.All(ctx, &found)
	return found, err
}

func aggregateAll[T any](ctx context.Context, from *driver.Collection, stages driver.Pipeline) ([]T, error) {
	cursor, err := from.Aggregate(ctx, stages, options.Aggregate().SetBatchSize(oneBatch))
	if err != nil {
		return nil, err
	}
	var found []T
	err = cursor.All(ctx, &found)
	return found, err
}

// first selects at most n documents, in the given order, with only the given fields.
func first(n int, order bson.D, fields ...string) *options.FindOptionsBuilder {
	opts := options.Find().SetLimit(int64(n)).SetBatchSize(int32(min(n, oneBatch)))
	if len(order) > 0 {
		opts.SetSort(order)
	}
	if len(fields) > 0 {
		opts.SetProjection(ascending(fields...))
	}
	return opts
}

// some is first, as stages of an aggregation.
func some(filter bson.D, n int, order bson.D, fields ...string) driver.Pipeline {
	return driver.Pipeline{
		{{Key: "$match", Value: filter}}, {{Key: "$sort", Value: order}}, {{Key: "$limit", Value: n}},
		{{Key: "$project", Value: ascending(fields...)}},
	}
}

// union is what several aggregations of a collection yield, one behind the
// other, with one round trip. MongoDB has none in transactions.
func union(of *driver.Collection, each ...driver.Pipeline) driver.Pipeline {
	all := slices.Clone(each[0])
	for _, more := range each[1:] {
		all = append(all, unionWith(part{of, more}))
	}
	return all
}

// part is one of several aggregations in one command.
type part struct {
	from   *driver.Collection
	stages driver.Pipeline
}

func unionWith(p part) bson.D {
	return bson.D{{Key: "$unionWith", Value: bson.D{{Key: "coll", Value: p.from.Name()}, {Key: "pipeline", Value: p.stages}}}}
}
