package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/mongo/internal/mongoerr"
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

// index is an index of a collection. A partial index contains only the documents that its filter
// selects; a query uses it only if the query contains the same condition.
type index struct {
	collection string
	name       string
	keys       bson.D
	partial    bson.D
	// With ttl, the server deletes a document when the time in its only key is ttl ago. ttl is
	// the same for every Config, because stores on the same collections may have different
	// settings, and a changed setting must not require a call of Ensure.
	ttl *time.Duration
	// unique means that no two documents have the same keys.
	unique bool
}

func ascending(fields ...string) bson.D {
	keys := make(bson.D, len(fields))
	for i, field := range fields {
		keys[i] = bson.E{Key: field, Value: 1}
	}
	return keys
}

func where(field string, value any) bson.D { return bson.D{{Key: field, Value: value}} }

func exists(field string) bson.D { return where(field, bson.D{{Key: "$exists", Value: true}}) }

func indexes() []index {
	atOnce, anHour := time.Duration(0), time.Hour
	return []index{
		// Claims read this index in its order. It is not partial, because claims skip through it
		// from topic to topic, and for a partial index older servers would check the condition on
		// each document.
		{collection: "records", name: "queue", keys: ascending("grp", "stage", "topic", "seq")},
		{collection: "records", name: "keyed", keys: ascending("grp", "stage", "topic", "key", "seq"), partial: where("keyed", true)},
		// Records that become claimable when their time comes.
		{collection: "records", name: "later", keys: ascending("grp", "stage", "topic", "available_at"), partial: exists("available_at")},
		{collection: "records", name: "leases", keys: ascending("available_at"), partial: exists("owner")},
		{collection: "records", name: "expiring", keys: ascending("expires_at"), partial: append(exists("expires_at"), where("open", true)...)},
		{collection: "records", name: "settled", keys: ascending("grp", "stage", "topic", "_id"), partial: where("settled", true)},
		{collection: "records", name: "delete_at", keys: ascending("delete_at"), partial: exists("delete_at"), ttl: &atOnce},
		{collection: "records", name: "aside", keys: ascending("grp", "stage", "topic", "paused_by", "seq"), partial: exists("paused_by")},
		// Ready records of fair topics, by tenant and by key. A stage in the keys that the condition
		// also names lets the server skip from turn to turn without reading documents.
		{collection: "records", name: "turns", keys: ascending("grp", "stage", "topic", "turn", "seq"), partial: where("stage", stageInTurn)},
		{collection: "records", name: "turn_key", keys: ascending("grp", "stage", "topic", "key", "seq"),
			partial: append(where("stage", stageInTurn), exists("key")...)},
		{collection: "records", name: "joined", keys: ascending("joined"), partial: exists("joined")},
		{collection: "joins", name: "grouping", keys: ascending("grouping_key", "status", "_id")},
		{collection: "joins", name: "status", keys: ascending("status", "_id")},
		{collection: "joins", name: "finished", keys: ascending("finished_at"), partial: exists("finished_at")},
		{collection: "join_members", name: "step", keys: ascending("step")},
		{collection: "join_members", name: "join", keys: ascending("join", "step")},
		{collection: "join_counts", name: "join", keys: ascending("join")},
		{collection: "lanes", name: "blocked", keys: ascending("grp", "topic", "blocked_by", "head")},
		{collection: "lanes", name: "until", keys: ascending("grp", "topic", "until")},
		{collection: "lanes", name: "paused", keys: ascending("grp", "topic", "paused_by"), partial: exists("paused_by")},
		{collection: "lanes", name: "expires", keys: ascending("grp", "topic", "expires"), partial: exists("expires")},
		{collection: "openings", name: "topic", keys: ascending("grp", "topic")},
		{collection: "openings", name: "opened_at", keys: ascending("opened_at"), ttl: &anHour},
		{collection: "workers", name: "seen", keys: ascending("grp", "seen_at")},
		{collection: "endings", name: "look", keys: ascending("look_at")},
		{collection: "endings", name: "empty", keys: ascending("empty")},
		{collection: "audit", name: "command", keys: ascending("command"), unique: true},
		{collection: "inbox", name: "delete_at", keys: ascending("delete_at"), partial: exists("delete_at"), ttl: &atOnce},
		{collection: "inbox", name: "look_at", keys: ascending("look_at"), partial: exists("look_at")},
		{collection: "dedup", name: "expires", keys: ascending("expires_at"), ttl: &atOnce},
	}
}

func (i index) seconds() (after int32, ttl bool) {
	if i.ttl == nil {
		return 0, false
	}
	return int32(*i.ttl / time.Second), true
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
		if err := errors.Join(s.checkVersion(ctx), s.checkQueries(ctx)); err != nil {
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
	byCollection := map[string][]index{}
	for _, i := range indexes() {
		byCollection[i.collection] = append(byCollection[i.collection], i)
	}
	for _, collection := range slices.Sorted(maps.Keys(byCollection)) {
		if err := s.ensureIndexes(ctx, s.collection(collection), byCollection[collection], found.Version > 0); err != nil {
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

func (s *Store) ensureIndexes(ctx context.Context, in *driver.Collection, wanted []index, inUse bool) error {
	present, err := indexesOf(ctx, in)
	if err != nil {
		return err
	}
	var missing bson.A
	for _, i := range wanted {
		found, ok := present[i.name]
		if !ok {
			missing = append(missing, i.spec())
		} else if err := i.check(in, found); err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err = s.build(ctx, in, missing, inUse)
	if mongoerr.HasCode(err, codeOptionsConflict) || mongoerr.HasCode(err, codeKeySpecsConflict) {
		return fmt.Errorf("%w: collection %s has an index that one of the store's would conflict with: drop it, or choose another "+
			"Config.CollectionPrefix: %w", errIndexConflict, in.Name(), err)
	}
	if slices.ContainsFunc(refusesIndex, func(code int) bool { return mongoerr.HasCode(err, code) }) {
		return lacking("partial indexes", err)
	}
	return err
}

var errIndexConflict = errors.New("conflicting index")

// definition is an index as the server lists it.
type definition struct {
	Name    string `bson:"name"`
	Keys    bson.D `bson:"key"`
	Partial bson.D `bson:"partialFilterExpression"`
	After   *int64 `bson:"expireAfterSeconds"`
	Unique  bool   `bson:"unique"`
}

func (d definition) String() string {
	said := text(d.Keys) + " where " + text(d.Partial)
	if d.Unique {
		said += ", unique"
	}
	if d.After != nil {
		said += fmt.Sprintf(", deleting after %d s", *d.After)
	}
	return said
}

func (i index) after() *int64 {
	after, ttl := i.seconds()
	if !ttl {
		return nil
	}
	seconds := int64(after)
	return &seconds
}

func indexesOf(ctx context.Context, in *driver.Collection) (map[string]definition, error) {
	cursor, err := in.Indexes().List(ctx)
	if err != nil {
		return nil, err
	}
	var list []definition
	if err := cursor.All(ctx, &list); err != nil {
		return nil, err
	}
	found := map[string]definition{}
	for _, d := range list {
		found[d.Name] = d
	}
	return found, nil
}

// check refuses an index with the same name and another definition.
func (i index) check(in *driver.Collection, found definition) error {
	wanted := definition{Keys: i.keys, Partial: i.partial, After: i.after(), Unique: i.unique}
	if wanted.String() == found.String() {
		return nil
	}
	return fmt.Errorf("%w: index %s of collection %s is on %s, and the store wants it on %s: drop it, or choose another "+
		"Config.CollectionPrefix",
		errIndexConflict, found.Name, in.Name(), found, wanted)
}

// text formats a document, and ignores the types of its numbers.
func text(d bson.D) string {
	if len(d) == 0 {
		return "{}"
	}
	raw, err := bson.MarshalExtJSON(whole(d), false, false)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// whole converts whole numbers to one type, because their type in an index depends on the program
// that created it.
func whole(d bson.D) bson.D {
	same := make(bson.D, len(d))
	for i, e := range d {
		same[i] = e
		switch value := e.Value.(type) {
		case bson.D:
			same[i].Value = whole(value)
		case float64:
			if n := int64(value); float64(n) == value {
				same[i].Value = n
			}
		}
	}
	return same
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
	add := func(command bson.D) { list = append(list, "db.runCommand("+text(command)+")") }
	byCollection := map[string]bson.A{}
	for _, i := range indexes() {
		byCollection[i.collection] = append(byCollection[i.collection], i.spec())
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
