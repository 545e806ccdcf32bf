package sagas

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/indexes"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// indexCorrelation is the unique index of a type's sagas.
const indexCorrelation = "outmill_correlation"

// sampled is the number of documents at each end of a collection in which PrepareSagas looks for
// documents without a correlation value.
const sampled = 100

func sagaIndexes(collection string) []indexes.Index {
	atOnce := time.Duration(0)
	return []indexes.Index{
		{Collection: collection, Name: indexCorrelation, Keys: ascending(fieldCorrelation), Partial: exists(fieldCorrelation), Unique: true},
		{Collection: collection, Name: "outmill_finished", Keys: ascending(fieldUpdated), Partial: where(fieldFinished, true)},
		{Collection: collection, Name: "outmill_delete_at", Keys: ascending(fieldDelete), Partial: exists(fieldDelete), TTL: &atOnce},
	}
}

// PrepareSagas creates the collections of the types. See roles.Sagas.
func (s *Sagas) PrepareSagas(ctx context.Context, kinds ...string) error {
	const operation = "prepare sagas"
	for _, kind := range kinds {
		if err := storekit.CheckSagaType(kind); err != nil {
			return s.config.Explain(ctx, operation, err)
		}
		if _, done := s.prepared.Load(kind); done {
			continue
		}
		if err := s.config.Alone(ctx, operation, false, func(ctx context.Context) error { return s.prepareSagas(ctx, kind) }); err != nil {
			return err
		}
	}
	return nil
}

// Often many of the first messages of a type come at the same time.
func (s *Sagas) prepareSagas(ctx context.Context, kind string) error {
	unlock, err := s.preparing.Lock(ctx, kind)
	if err != nil {
		return err
	}
	defer unlock()
	if _, done := s.prepared.Load(kind); done {
		return nil
	}
	in, err := s.sagasOf(kind)
	if err != nil {
		return err
	}
	err = s.config.DB.CreateCollection(ctx, in.Name())
	existed := mongoerr.HasCode(err, mongoerr.CodeNamespaceExists)
	if err != nil && !existed {
		return err
	}
	if existed {
		if err := s.checkSagaDocuments(ctx, in); err != nil {
			return err
		}
	}
	if err := indexes.Ensure(ctx, in, sagaIndexes(in.Name()), existed); err != nil {
		return err
	}
	s.prepared.Store(kind, true)
	return nil
}

// ValidCollection reports whether a collection can have the name.
func ValidCollection(name string) bool {
	return name != "" && len(name) <= 100 && !strings.ContainsAny(name, "$\x00") && !strings.HasPrefix(name, "system.") &&
		!strings.HasPrefix(name, ".")
}

// sagasOf returns the collection of a type.
func (s *Sagas) sagasOf(kind string) (*mongo.Collection, error) {
	name := s.config.Collection(kind)
	if s.config.IsOwn(name) || !ValidCollection(name) {
		return nil, storekit.InvalidConfig("mongo.Config.SagaCollection gives %q for %q: want a collection's name, at most 100 bytes, without "+
			"$, that is none of the store's", name, kind)
	}
	return s.config.DB.Collection(name), nil
}

// checkSagaDocuments returns roles.ErrSagaUnkeyed if the collection has documents without a
// correlation value, which no message would find. If the store's index is missing, which is built
// from all documents, it looks at all of them too, and otherwise at some.
func (s *Sagas) checkSagaDocuments(ctx context.Context, in *mongo.Collection) error {
	present, err := indexes.Of(ctx, in)
	if err != nil {
		return err
	}
	if _, known := present[indexCorrelation]; !known {
		err := in.FindOne(ctx, where(fieldCorrelation, bson.D{{Key: "$exists", Value: false}})).Err()
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return nil
		case err == nil:
			return unkeyedError(in)
		}
		return err
	}
	for _, order := range []int{1, -1} {
		found, err := findAll[bson.Raw](ctx, in, bson.D{}, first(sampled, where("$natural", order), fieldCorrelation))
		if err != nil {
			return err
		}
		for _, document := range found {
			if document.Lookup(fieldCorrelation).IsZero() {
				return unkeyedError(in)
			}
		}
	}
	return nil
}

func unkeyedError(in *mongo.Collection) error {
	return fmt.Errorf("%w: collection %s has a document without %s: if its documents are sagas, such as those of NServiceBus, set the field "+
		"from the property that correlates them: "+
		"db.getCollection(%q).updateMany({%s: {$exists: false}}, [{$set: {%s: {$toString: \"$OrderId\"}}}]); "+
		"otherwise choose another collection for the sagas: mongo.Config.SagaCollection",
		roles.ErrSagaUnkeyed, in.Name(), fieldCorrelation, in.Name(), fieldCorrelation, fieldCorrelation)
}

// unprepared says that the collection of a type lacks its unique index. The work is repeated,
// which prepares the collection again.
type unprepared struct{ err error }

func (e unprepared) Error() string {
	return fmt.Sprintf("the collection of the sagas has lost its unique index %s, and the store makes it again: %v", indexCorrelation, e.err)
}

func (e unprepared) Unwrap() error { return e.err }

func (unprepared) HasErrorLabel(label string) bool { return label == mongoerr.LabelTransient }
