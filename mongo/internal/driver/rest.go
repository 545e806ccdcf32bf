package driver

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/outmill/outmill/engine/driver"
)

var (
	_ driver.Sharer  = (*Driver)(nil)
	_ driver.Rester  = (*Driver)(nil)
	_ driver.Witness = (*Driver)(nil)
)

const (
	// asksAtOnce is how many databases are asked at the same time, because no command of MongoDB reads several.
	asksAtOnce = 4
	// farRest is a rest that nothing ends by time.
	farRest = 365 * 24 * time.Hour
)

// SharesWith returns the client. See driver.Sharer.
func (d *Driver) SharesWith() any { return d.client }

// Heard tells of the change stream. See driver.Witness.
func (d *Driver) Heard() (reports uint64, hears bool) { return d.hearing.Heard() }

// Resting asks each database with one command. See driver.Rester.
func (d *Driver) Resting(ctx context.Context, stores []driver.Rest) ([]time.Duration, error) {
	lasts := make([]time.Duration, len(stores))
	var work sync.WaitGroup
	for first := range min(asksAtOnce, len(stores)) {
		work.Go(func() {
			for i := first; i < len(stores) && ctx.Err() == nil; i += asksAtOnce {
				if other, ok := stores[i].DB.(*Driver); ok {
					// A database that cannot be asked does not rest.
					lasts[i], _ = other.rests(ctx, stores[i])
				}
			}
		})
	}
	work.Wait()
	return lasts, ctx.Err()
}

// rests reads one entry of an index for each group, and one for each kind. The server reads as the primary that a majority has: see
// driver.Rester.
func (d *Driver) rests(ctx context.Context, asked driver.Rest) (lasts time.Duration, err error) {
	t := &tx{d: d, inserts: true, state: driver.State{}}
	first := func(from *mongo.Collection, filter bson.D, field string) part {
		return part{from, mongo.Pipeline{
			{{Key: "$match", Value: append(filter, above(field, int64(0)))}}, {{Key: "$sort", Value: ascending(field)}},
			{{Key: "$limit", Value: 1}}, {{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "at", Value: "$" + field}}}},
		}}
	}
	parts := append(t.partsOf(driver.Search{By: driver.ByOpen, Limit: 1}),
		first(d.records, bson.D{stageIs(driver.Processed)}, "processed"))
	for _, end := range asked.Ends {
		parts = append(parts, first(d.entries, bson.D{{Key: "_id.kind", Value: end.Kind}}, "at"))
	}
	var results [][]bson.Raw
	err = d.repeat(ctx, func() error {
		results, err = t.readFrom(ctx, d.meta.Clone(options.Collection().SetReadConcern(readconcern.Linearizable())), true, parts...)
		return err
	})
	if err != nil || len(results[0]) > 0 {
		return 0, err
	}
	lasts = farRest
	for i, found := range results[1:] {
		kept := asked.Processed
		if i > 0 {
			kept = asked.Ends[i-1].Kept
		}
		for _, raw := range found {
			at, _ := raw.Lookup("at").AsInt64OK()
			lasts = min(lasts, time.Duration(at-int64(t.state.Now))*time.Microsecond+kept)
		}
	}
	return max(lasts, 0), nil
}
