package driver

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// After returns the ids of all rows behind an id, and those rows that are like the given one: of the others the server sends the ids alone.
func (t *tx) After(ctx context.Context, id outmill.WorkItemID, limit int, like driver.Like) ([]outmill.WorkItemID, []driver.Row, error) {
	if limit <= 0 {
		return nil, nil, nil
	}
	other := bson.D{{Key: "_id", Value: "$_id"}, {Key: fieldOther, Value: true}}
	found, err := t.all(ctx, part{t.d.records, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{above("_id", uuid(id))}}}, {{Key: "$sort", Value: ascending("_id")}}, {{Key: "$limit", Value: limit}},
		{{Key: "$replaceWith", Value: bson.D{{Key: "$cond", Value: bson.A{bson.D{{Key: "$and", Value: conditions(like)}}, "$$ROOT", other}}}}},
		withoutContent,
	}})
	if err != nil {
		return nil, nil, err
	}
	ids, alike := make([]outmill.WorkItemID, len(found)), make([]bson.Raw, 0, len(found))
	for i, raw := range found {
		ids[i] = readRow(raw).ID
		if _, err := raw.LookupErr(fieldOther); err != nil {
			alike = append(alike, raw)
		}
	}
	rows, err := t.shown(ctx, readRows(alike))
	return ids, rows, err
}

// fieldOther marks a row that is not like the given one.
const fieldOther = "other"

// conditions are those of rows that are like the given one.
func conditions(like driver.Like) bson.A {
	compare := func(operator, field string, value any) bson.D {
		return bson.D{{Key: operator, Value: bson.A{field, bson.D{{Key: "$literal", Value: value}}}}}
	}
	all := bson.A{}
	for field, value := range map[string]string{
		"$grp": like.Group, "$key": like.Key, "$tenant": like.Tenant,
		"$content.message": like.MessageID, "$content.correlation": like.CorrelationID,
	} {
		if value != "" {
			all = append(all, compare("$eq", field, value))
		}
	}
	if like.Topic != "" {
		// A topic that begins with a blank is that of a part.
		all = append(all, bson.D{{Key: "$or", Value: bson.A{compare("$eq", "$topic", like.Topic), compare("$lt", "$topic", "!")}}})
	}
	if like.First > driver.Ready || like.Last < driver.Dead {
		// A stage that no row has is broken, and the engine takes it for the first.
		between := bson.A{compare("$gte", "$stage", int(like.First)), compare("$lte", "$stage", int(like.Last))}
		all = append(all, bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "$and", Value: between}}, compare("$lt", "$stage", int(driver.Ready)), compare("$gt", "$stage", int(driver.Dead)),
		}}})
	}
	return all
}
