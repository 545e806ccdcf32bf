// Package indexes makes indexes of collections, and finds those that somebody has changed.
package indexes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/mongo/internal/platform"
)

// Index is an index of a collection. A partial index contains only the documents that its filter
// selects; a query uses it only if the query contains the same condition.
type Index struct {
	Collection, Name string
	Keys, Partial    bson.D
	// With TTL, the server deletes a document when the time in its only key is TTL ago. TTL is
	// the same for every Config, because stores on the same collections may have different
	// settings, and a changed setting must not require a call of Ensure.
	TTL *time.Duration
	// Unique means that no two documents have the same keys.
	Unique bool
}

// Codes of a server that has an index with the same name or the same keys.
const (
	codeOptionsConflict  = 85
	codeKeySpecsConflict = 86
)

// refusesIndex are codes of servers that do not know an option of an index: FailedToParse,
// CannotCreateIndex, CommandNotSupported, InvalidIndexSpecificationOption, NotImplemented, and
// Amazon's FeatureNotSupported.
var refusesIndex = []int{9, 67, 115, 197, 238, 303}

func (i Index) seconds() (after int32, ttl bool) {
	if i.TTL == nil {
		return 0, false
	}
	return int32(*i.TTL / time.Second), true
}

// Ensure makes those of the indexes that are missing. It changes none: an index with the same name or keys and another definition is an
// error with both. inUse says that others use the collection: a build that holds them up is stopped, and tried again.
func Ensure(ctx context.Context, in *mongo.Collection, wanted []Index, inUse bool) error {
	present, err := Of(ctx, in)
	if err != nil {
		return err
	}
	var missing bson.A
	for _, i := range wanted {
		found, ok := present[i.Name]
		if !ok {
			missing = append(missing, i.Spec())
		} else if err := i.Check(in, found); err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err = build(ctx, in, missing, inUse)
	if mongoerr.HasCode(err, codeOptionsConflict) || mongoerr.HasCode(err, codeKeySpecsConflict) {
		return fmt.Errorf("%w: collection %s has an index that one of the store's would conflict with: drop it, or choose another "+
			"Config.CollectionPrefix: %w", ErrConflict, in.Name(), err)
	}
	if slices.ContainsFunc(refusesIndex, func(code int) bool { return mongoerr.HasCode(err, code) }) {
		return platform.Lacking("partial indexes", err)
	}
	return err
}

// ErrConflict says that there is another index with the same name or the same keys.
var ErrConflict = errors.New("conflicting index")

// Definition is an index as the server lists it.
type Definition struct {
	Name    string `bson:"name"`
	Keys    bson.D `bson:"key"`
	Partial bson.D `bson:"partialFilterExpression"`
	After   *int64 `bson:"expireAfterSeconds"`
	Unique  bool   `bson:"unique"`
}

func (d Definition) String() string {
	said := Text(d.Keys) + " where " + Text(d.Partial)
	if d.Unique {
		said += ", unique"
	}
	if d.After != nil {
		said += fmt.Sprintf(", deleting after %d s", *d.After)
	}
	return said
}

func (i Index) after() *int64 {
	after, ttl := i.seconds()
	if !ttl {
		return nil
	}
	seconds := int64(after)
	return &seconds
}

// Of returns the indexes of a collection, by their names.
func Of(ctx context.Context, in *mongo.Collection) (map[string]Definition, error) {
	cursor, err := in.Indexes().List(ctx)
	if err != nil {
		return nil, err
	}
	var list []Definition
	if err := cursor.All(ctx, &list); err != nil {
		return nil, err
	}
	found := map[string]Definition{}
	for _, d := range list {
		found[d.Name] = d
	}
	return found, nil
}

// Check refuses an index with the same name and another definition.
func (i Index) Check(in *mongo.Collection, found Definition) error {
	wanted := Definition{Keys: i.Keys, Partial: i.Partial, After: i.after(), Unique: i.Unique}
	if wanted.String() == found.String() {
		return nil
	}
	return fmt.Errorf("%w: index %s of collection %s is on %s, and the store wants it on %s: drop it, or choose another "+
		"Config.CollectionPrefix",
		ErrConflict, found.Name, in.Name(), found, wanted)
}

// Text formats a document, and ignores the types of its numbers.
func Text(d bson.D) string {
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
