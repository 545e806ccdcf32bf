package mongo

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/mongo/internal/indexes"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/mongo/internal/platform"
	"github.com/outmill/outmill/storekit"
)

// schemaVersion is the version of this program's schema, and compatible the oldest version whose
// programs can use that schema.
const (
	schemaVersion = 1
	compatible    = 1
)

var collectionNames = []string{"records", "meta", "dedup", "lanes", "openings", "locks", "joins", "join_members", "join_counts", "workers",
	"endings", "inbox", "audit"}

func ascending(fields ...string) bson.D {
	keys := make(bson.D, len(fields))
	for i, field := range fields {
		keys[i] = bson.E{Key: field, Value: 1}
	}
	return keys
}

func where(field string, value any) bson.D { return bson.D{{Key: field, Value: value}} }

func exists(field string) bson.D { return where(field, bson.D{{Key: "$exists", Value: true}}) }

func allIndexes() []indexes.Index {
	atOnce, anHour := time.Duration(0), time.Hour
	return []indexes.Index{
		// Claims read this index in its order. It is not partial, because claims skip through it
		// from topic to topic, and for a partial index older servers would check the condition on
		// each document.
		{Collection: "records", Name: "queue", Keys: ascending("grp", "stage", "topic", "seq")},
		{Collection: "records", Name: "keyed", Keys: ascending("grp", "stage", "topic", "key", "seq"), Partial: where("keyed", true)},
		// Records that become claimable when their time comes.
		{Collection: "records", Name: "later", Keys: ascending("grp", "stage", "topic", "available_at"), Partial: exists("available_at")},
		{Collection: "records", Name: "leases", Keys: ascending("available_at"), Partial: exists("owner")},
		{Collection: "records", Name: "expiring", Keys: ascending("expires_at"), Partial: append(exists("expires_at"), where("open", true)...)},
		{Collection: "records", Name: "settled", Keys: ascending("grp", "stage", "topic", "_id"), Partial: where("settled", true)},
		{Collection: "records", Name: "delete_at", Keys: ascending("delete_at"), Partial: exists("delete_at"), TTL: &atOnce},
		{Collection: "records", Name: "aside", Keys: ascending("grp", "stage", "topic", "paused_by", "seq"), Partial: exists("paused_by")},
		// Ready records of fair topics, by tenant and by key. A stage in the keys that the condition
		// also names lets the server skip from turn to turn without reading documents.
		{Collection: "records", Name: "turns", Keys: ascending("grp", "stage", "topic", "turn", "seq"), Partial: where("stage", stageInTurn)},
		{Collection: "records", Name: "turn_key", Keys: ascending("grp", "stage", "topic", "key", "seq"),
			Partial: append(where("stage", stageInTurn), exists("key")...)},
		{Collection: "records", Name: "joined", Keys: ascending("joined"), Partial: exists("joined")},
		{Collection: "joins", Name: "grouping", Keys: ascending("grouping_key", "status", "_id")},
		{Collection: "joins", Name: "status", Keys: ascending("status", "_id")},
		{Collection: "joins", Name: "finished", Keys: ascending("finished_at"), Partial: exists("finished_at")},
		{Collection: "join_members", Name: "step", Keys: ascending("step")},
		{Collection: "join_members", Name: "join", Keys: ascending("join", "step")},
		{Collection: "join_counts", Name: "join", Keys: ascending("join")},
		{Collection: "lanes", Name: "blocked", Keys: ascending("grp", "topic", "blocked_by", "head")},
		{Collection: "lanes", Name: "until", Keys: ascending("grp", "topic", "until")},
		{Collection: "lanes", Name: "paused", Keys: ascending("grp", "topic", "paused_by"), Partial: exists("paused_by")},
		{Collection: "lanes", Name: "expires", Keys: ascending("grp", "topic", "expires"), Partial: exists("expires")},
		{Collection: "openings", Name: "topic", Keys: ascending("grp", "topic")},
		{Collection: "openings", Name: "opened_at", Keys: ascending("opened_at"), TTL: &anHour},
		{Collection: "workers", Name: "seen", Keys: ascending("grp", "seen_at")},
		{Collection: "endings", Name: "look", Keys: ascending("look_at")},
		{Collection: "endings", Name: "empty", Keys: ascending("empty")},
		{Collection: "audit", Name: "command", Keys: ascending("command"), Unique: true},
		{Collection: "inbox", Name: "delete_at", Keys: ascending("delete_at"), Partial: exists("delete_at"), TTL: &atOnce},
		{Collection: "inbox", Name: "look_at", Keys: ascending("look_at"), Partial: exists("look_at")},
		{Collection: "dedup", Name: "expires", Keys: ascending("expires_at"), TTL: &atOnce},
	}
}

// Ensure creates the collections and indexes, or brings them up to date. It creates a dropped
// index again. It does not change an index that has the same name and another definition, and
// returns an error with both definitions. Ensure needs the role readWrite. It refuses a server
// that lacks features that the store uses with errors.ErrUnsupported. See outmill.Schema.
//
// An index build locks the collection for a moment. It first waits for open transactions that
// have written to the collection, and all other operations wait behind it. So Ensure stops a
// build after one second, or later if there are many documents, and tries it again several times,
// with long pauses, before it returns an error.
func (s *Store) Ensure(ctx context.Context) error {
	return s.explain(ctx, "ensure the schema", s.ensure(alone(ctx)))
}

func (s *Store) ensure(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	found, err := s.findState(ctx)
	if err != nil {
		return err
	}
	if err := schemaError(found); err != nil && found.Version > schemaVersion {
		return err
	}
	if found.Version == 0 {
		if err := errors.Join(platform.CheckVersion(ctx, s.db), platform.CheckQueries(ctx, s.meta)); err != nil {
			return err
		}
		if err := s.checkNames(ctx); err != nil {
			return err
		}
	}
	for _, name := range collectionNames {
		if err := s.db.CreateCollection(ctx, s.config.CollectionName(name)); err != nil && !mongoerr.HasCode(err, mongoerr.CodeNamespaceExists) {
			return err
		}
	}
	if found.Version == 0 {
		if err := s.checkTransactions(ctx); err != nil {
			return err
		}
	}
	byCollection := map[string][]indexes.Index{}
	for _, i := range allIndexes() {
		byCollection[i.Collection] = append(byCollection[i.Collection], i)
	}
	for _, collection := range slices.Sorted(maps.Keys(byCollection)) {
		if err := indexes.Ensure(ctx, s.collection(collection), byCollection[collection], s.builds(found.Version > 0)); err != nil {
			return err
		}
	}
	// The version is written last, so that a process that reads it finds all indexes.
	_, err = s.meta.UpdateOne(ctx, where("_id", metaID), bson.D{
		{Key: "$max", Value: bson.D{{Key: "version", Value: schemaVersion}, {Key: "compatible", Value: compatible}}},
		{Key: "$setOnInsert", Value: bson.D{{Key: "generation", Value: int64(0)}, {Key: "groups", Value: bson.A{}}}},
	}, options.UpdateOne().SetUpsert(true))
	if driver.IsDuplicateKeyError(err) {
		// Another process has just inserted it.
		return nil
	}
	return err
}

func (s *Store) builds(inUse bool) indexes.How {
	return indexes.How{InUse: inUse, Standalone: s.config.WithoutTransactions}
}

// checkNames refuses collections of other programs. An Ensure that was interrupted leaves empty ones. It reads the state
// again, because another process may have made the schema and used it since.
func (s *Store) checkNames(ctx context.Context) error {
	var taken []string
	for _, name := range collectionNames {
		some, err := findAll[bson.Raw](ctx, s.collection(name), bson.D{}, first(1, nil, "_id"))
		if err != nil {
			return err
		}
		if len(some) > 0 {
			taken = append(taken, s.db.Name()+"."+s.config.CollectionName(name))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	found, err := s.findState(ctx)
	if err != nil || found.Version > 0 {
		return err
	}
	return storekit.ForeignTables("collection", taken, "Config.CollectionPrefix or Config.Database (collection_prefix in a URL)")
}

// Statements returns the commands that create the schema, one in each line, for mongosh:
// db.runCommand({…}).
func (s *Store) Statements() []string {
	statements, _ := s.StatementsFrom(0)
	return statements
}

// StatementsFrom returns the commands that upgrade a schema from that version to the newest one.
// See outmill.Schema.
func (s *Store) StatementsFrom(version int) ([]string, error) {
	if err := storekit.CheckSchemaVersion(version, schemaVersion); err != nil {
		return nil, s.explain(context.Background(), "statements", err)
	}
	if version == schemaVersion {
		return nil, nil
	}
	return s.creation(), nil
}

// creation returns the commands that create the first version.
func (s *Store) creation() []string {
	var list []string
	add := func(command bson.D) { list = append(list, "db.runCommand("+indexes.Text(command)+")") }
	byCollection := map[string]bson.A{}
	for _, i := range allIndexes() {
		byCollection[i.Collection] = append(byCollection[i.Collection], i.Spec())
	}
	for _, name := range collectionNames {
		given := s.config.CollectionName(name)
		add(bson.D{{Key: "create", Value: given}})
		if specs := byCollection[name]; len(specs) > 0 {
			add(bson.D{{Key: "createIndexes", Value: given}, {Key: "indexes", Value: specs}})
		}
	}
	add(bson.D{{Key: "insert", Value: s.config.CollectionName("meta")}, {Key: "documents", Value: bson.A{bson.D{
		{Key: "_id", Value: metaID}, {Key: "version", Value: schemaVersion}, {Key: "compatible", Value: compatible},
		{Key: "generation", Value: 0}, {Key: "groups", Value: bson.A{}},
	}}}})
	return list
}

// schemaError returns the reason why this program cannot use the schema, or nil.
func schemaError(found *state) error {
	return storekit.SchemaVersion{Version: found.Version, Compatible: found.Compatible}.Check(schemaVersion)
}
