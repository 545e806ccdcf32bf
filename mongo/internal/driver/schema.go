package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/indexes"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/mongo/internal/platform"
	"github.com/outmill/outmill/storekit"
)

// schemaVersion is the version that this program supports.
const schemaVersion = 1

// nameSettings are the settings that give the collections other names.
const nameSettings = "Config.CollectionPrefix or Config.Database (collection_prefix in a URL)"

// allIndexes are few, because each costs a look-up for each document that a transaction updates.
func allIndexes() []indexes.Index {
	has := func(field string, above any) bson.D {
		return bson.D{{Key: field, Value: bson.D{{Key: "$gt", Value: above}}}}
	}
	exists := func(field string) bson.D { return bson.D{{Key: field, Value: bson.D{{Key: "$exists", Value: true}}}} }
	of := func(collection, name string, keys, partial bson.D) indexes.Index {
		return indexes.Index{Collection: collection, Name: name, Keys: keys, Partial: partial}
	}
	atOnce := time.Duration(0)
	return []indexes.Index{
		// The topic is behind the stage, so that the server skips from line to line of a stage. See tx.Due.
		of("records", "line", ascending("grp", "stage", "topic", "wake", "seq"), nil),
		of("records", "keyed", ascending("grp", "topic", "key", "stage", "seq"), has("key", "")),
		of("records", "parked", ascending("grp", "topic", "parked", "key", "seq"), bson.D{{Key: "parked", Value: true}}),
		of("records", "held", ascending("grp", "topic", "under", "seq"), has("under", "")),
		// A query finds it by its condition on the group, and merges the stages.
		of("records", "unrouted", ascending("topic", "stage", "seq"), bson.D{{Key: "grp", Value: ""}}),
		of("records", "leased", ascending("wake", "seq"), bson.D{{Key: "stage", Value: int32(driver.Leased)}}),
		of("records", "expiring", ascending("expires", "seq"), has("expires", 0)),
		of("records", "processed", ascending("processed", "seq"), has("processed", 0)),
		of("records", "steps", ascending("step"), exists("step")),
		of("records", "waiters", ascending("waits_for"), exists("waits_for")),
		of("notes", "blockers", ascending("_id.grp", "blocker", "_id.topic", "head", "_id.name"), nil),
		of("notes", "looks", ascending("_id.grp", "look_at", "_id.topic"), has("look_at", 0)),
		of("entries", "ends", ascending("_id.kind", "at", "_id"), has("at", 0)),
		{Collection: "entries", Name: fieldDelete, Keys: ascending(fieldDelete), Partial: exists(fieldDelete), TTL: &atOnce},
	}
}

func byCollection() map[string][]indexes.Index {
	lists := map[string][]indexes.Index{}
	for _, i := range allIndexes() {
		lists[i.Collection] = append(lists[i.Collection], i)
	}
	return lists
}

// newMeta are the fields of a new document of meta, beside its versions.
var newMeta = bson.D{{Key: "routes", Value: int64(0)}, {Key: "pauses", Value: int64(0)}}

// StatementsFrom returns the commands for mongosh. See outmill.Schema.
func (d *Driver) StatementsFrom(version int) ([]string, error) {
	if err := storekit.CheckSchemaVersion(version, schemaVersion); err != nil || version == schemaVersion {
		return nil, err
	}
	var list []string
	add := func(command bson.D) { list = append(list, "db.runCommand("+indexes.Text(command)+")") }
	for _, name := range Collections() {
		given, specs := d.config.Collection(name), bson.A{}
		for _, i := range byCollection()[name] {
			specs = append(specs, i.Spec())
		}
		add(bson.D{{Key: "create", Value: given}})
		if len(specs) > 0 {
			add(bson.D{{Key: "createIndexes", Value: given}, {Key: "indexes", Value: specs}})
		}
	}
	document := append(bson.D{{Key: "_id", Value: metaID}, {Key: "version", Value: schemaVersion}, {Key: "compatible", Value: schemaVersion}},
		newMeta...)
	add(bson.D{{Key: "insert", Value: d.meta.Name()}, {Key: "documents", Value: bson.A{document}}})
	return list, nil
}

// checkMeta returns the version in the document of meta, and an error if this program cannot use the schema. The version is 0 if there
// is no document.
func (d *Driver) checkMeta(raw bson.Raw) (version int, err error) {
	var found meta
	if raw != nil {
		if err := bson.Unmarshal(raw, &found); err != nil {
			return 0, err
		}
		if found.Routes == nil {
			// Versions of this store before its first release had such a document, too.
			return found.Version, fmt.Errorf("%w: the collection %s.%s is not one of this version's: drop the collections of the schema, or choose "+
				"another name for Outmill's with %s", outmill.ErrSchemaForeign, d.db.Name(), d.meta.Name(), nameSettings)
		}
	}
	return found.Version, storekit.SchemaVersion{Version: found.Version, Compatible: found.Compatible}.Check(schemaVersion)
}

// version reads the version of the schema. See checkMeta.
func (d *Driver) version(ctx context.Context) (version int, err error) {
	raw, err := d.meta.FindOne(ctx, idIs(metaID)).Raw()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return 0, err
	}
	return d.checkMeta(raw)
}

// Ensure makes what is missing of the schema, and indexes that somebody has dropped. It refuses a server that lacks features, and
// collections of other programs. See outmill.Schema.
func (d *Driver) Ensure(ctx context.Context) error {
	ctx = alone(ctx)
	return d.repeat(ctx, func() error {
		version, err := d.version(ctx)
		switch {
		case version > schemaVersion || err != nil && !errors.Is(err, outmill.ErrSchemaMissing):
			return err
		case version == 0:
			if err := d.mayCreate(ctx); err != nil {
				return err
			}
		}
		return d.create(ctx, version > 0)
	})
}

// mayCreate returns why there can be no schema.
func (d *Driver) mayCreate(ctx context.Context) error {
	if err := errors.Join(platform.CheckVersion(ctx, d.db), platform.CheckQueries(ctx, d.meta)); err != nil {
		return err
	}
	var taken []string
	for _, name := range Collections() {
		in := d.collection(name)
		switch err := in.FindOne(ctx, bson.D{}, options.FindOne().SetProjection(idIs(1))).Err(); {
		case err == nil:
			taken = append(taken, d.db.Name()+"."+in.Name())
		case !errors.Is(err, mongo.ErrNoDocuments):
			return err
		}
	}
	if len(taken) > 0 {
		// Another process may have made the schema since, and used it.
		if version, err := d.version(ctx); version > 0 {
			return err
		}
	}
	return storekit.ForeignTables("collection", taken, nameSettings)
}

func (d *Driver) create(ctx context.Context, inUse bool) error {
	for _, name := range Collections() {
		if err := d.db.CreateCollection(ctx, d.config.Collection(name)); err != nil && !mongoerr.HasCode(err, mongoerr.CodeNamespaceExists) {
			return err
		}
	}
	if !inUse {
		// A transaction creates no collections on older servers.
		run := func(fn func(ctx context.Context) error) error {
			return d.repeat(ctx, func() error { return d.transactOnce(ctx, fn) })
		}
		if err := platform.CheckTransactions(run, d.lines, d.entries); err != nil {
			return err
		}
	}
	lists := byCollection()
	for _, name := range Collections() {
		if err := indexes.Ensure(ctx, d.collection(name), lists[name], inUse); err != nil {
			return err
		}
	}
	// The version is written last, so that a process that reads it finds all indexes.
	_, err := d.meta.UpdateOne(ctx, idIs(metaID), bson.D{
		{Key: "$max", Value: bson.D{{Key: "version", Value: schemaVersion}, {Key: "compatible", Value: schemaVersion}}},
		{Key: "$setOnInsert", Value: newMeta},
	}, options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		// Another process has just inserted it.
		return nil
	}
	return err
}
