package next

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

// schemaVersion is the version that this program supports.
const schemaVersion = 1

// index is an index of a collection. A partial one has only the documents that its filter selects.
type index struct {
	collection, name string
	keys, partial    bson.D
}

// indexes are few, because each costs a look-up for each document that a transaction updates.
func indexes() []index {
	has := func(field string, above any) bson.D {
		return bson.D{{Key: field, Value: bson.D{{Key: "$gt", Value: above}}}}
	}
	exists := func(field string) bson.D { return bson.D{{Key: field, Value: bson.D{{Key: "$exists", Value: true}}}} }
	return []index{
		// The topic is behind the stage, so that the server skips from line to line of a stage. See tx.Due.
		{"records", "line", ascending("grp", "stage", "topic", "wake", "seq"), nil},
		{"records", "keyed", ascending("grp", "topic", "key", "stage", "seq"), has("key", "")},
		{"records", "parked", ascending("grp", "topic", "key", "seq"), bson.D{{Key: "parked", Value: true}}},
		{"records", "held", ascending("grp", "topic", "under", "seq"), has("under", "")},
		{"records", "leased", ascending("wake"), bson.D{{Key: "stage", Value: int32(driver.Leased)}}},
		{"records", "expiring", ascending("expires"), has("expires", 0)},
		{"records", "processed", ascending("processed"), has("processed", 0)},
		{"records", "steps", ascending("step"), exists("step")},
		{"records", "waiters", ascending("waits_for"), exists("waits_for")},
		{"notes", "blockers", ascending("_id.grp", "blocker", "_id.topic", "head"), nil},
		{"notes", "looks", ascending("_id.grp", "look_at", "_id.topic"), has("look_at", 0)},
		{"entries", "ends", ascending("_id.kind", "at", "_id"), has("at", 0)},
	}
}

// commands make the schema.
func (d *Driver) commands() (commands []bson.D) {
	lists := map[string]bson.A{}
	for _, i := range indexes() {
		spec := bson.D{{Key: "name", Value: i.name}, {Key: "key", Value: i.keys}}
		if i.partial != nil {
			spec = append(spec, bson.E{Key: "partialFilterExpression", Value: i.partial})
		}
		lists[i.collection] = append(lists[i.collection], spec)
	}
	for _, name := range Collections() {
		commands = append(commands, bson.D{{Key: "create", Value: d.config.Collection(name)}})
		if list := lists[name]; list != nil {
			commands = append(commands, bson.D{{Key: "createIndexes", Value: d.config.Collection(name)}, {Key: "indexes", Value: list}})
		}
	}
	return append(commands, bson.D{{Key: "update", Value: d.meta.Name()}, {Key: "updates", Value: bson.A{bson.D{
		{Key: "q", Value: idIs(metaID)}, {Key: "upsert", Value: true},
		{Key: "u", Value: bson.D{{Key: "$setOnInsert", Value: bson.D{
			{Key: "version", Value: schemaVersion}, {Key: "compatible", Value: schemaVersion},
			{Key: "routes", Value: int64(0)}, {Key: "pauses", Value: int64(0)},
		}}}},
	}}}})
}

// Ensure makes what is missing of the schema. See outmill.Schema.
func (d *Driver) Ensure(ctx context.Context) error {
	return d.repeat(ctx, func() error {
		var found meta
		if d.meta.FindOne(alone(ctx), idIs(metaID)).Decode(&found) == nil {
			return storekit.SchemaVersion{Version: found.Version, Compatible: found.Compatible}.Check(schemaVersion)
		}
		for _, command := range d.commands() {
			if err := d.db.RunCommand(alone(ctx), command).Err(); err != nil && !mongoerr.HasCode(err, mongoerr.CodeNamespaceExists) {
				return fmt.Errorf("schema version %d: %w", schemaVersion, err)
			}
		}
		return nil
	})
}

// StatementsFrom returns the commands for mongosh. See outmill.Schema.
func (d *Driver) StatementsFrom(version int) ([]string, error) {
	if err := storekit.CheckSchemaVersion(version, schemaVersion); err != nil || version == schemaVersion {
		return nil, err
	}
	var list []string
	for _, command := range d.commands() {
		text, err := bson.MarshalExtJSON(command, false, false)
		if err != nil {
			return nil, err
		}
		list = append(list, "db.runCommand("+strings.TrimSpace(string(text))+")")
	}
	return list, nil
}
