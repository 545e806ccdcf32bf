package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.Sagas = (*Store)(nil)

// Fields of a saga's document that are not part of its state. NServiceBus uses the same name for
// the field of the version, and the same place next to the state.
const (
	defaultVersionField = "_version"
	fieldID             = "_id"
	fieldCorrelation    = "_correlation"
	fieldFinished       = "_finished"
	fieldCreated        = "_created_at"
	fieldUpdated        = "_updated_at"
)

func sagaIndexes(collection string) []index {
	atOnce := time.Duration(0)
	return []index{
		{collection: collection, name: "outmill_correlation", keys: ascending(fieldCorrelation), partial: exists(fieldCorrelation), unique: true},
		{collection: collection, name: "outmill_finished", keys: ascending(fieldUpdated), partial: where(fieldFinished, true)},
		{collection: collection, name: "outmill_delete_at", keys: ascending(fieldDelete), partial: exists(fieldDelete), ttl: &atOnce},
	}
}

// sagaHead is a saga's document without its state. The user may name the version's field.
type sagaHead struct {
	ID        uuid      `bson:"_id"`
	Finished  bool      `bson:"_finished"`
	CreatedAt time.Time `bson:"_created_at"`
	UpdatedAt time.Time `bson:"_updated_at"`
}

// PrepareSagas creates the collections of the types. See storekit.Sagas.
func (s *Store) PrepareSagas(ctx context.Context, kinds ...string) error {
	const operation = "prepare sagas"
	for _, kind := range kinds {
		if err := storekit.CheckSagaType(kind); err != nil {
			return s.explain(ctx, operation, err)
		}
		if _, done := s.prepared.Load(kind); done {
			continue
		}
		if err := s.do(ctx, operation, func(ctx context.Context) error { return s.prepareSagas(ctx, kind) }); err != nil {
			return err
		}
	}
	return nil
}

// preparing is the lock of a type whose collection is being created. Often many of the first
// messages of a type come at the same time.
type preparing string

func (s *Store) prepareSagas(ctx context.Context, kind string) error {
	unlock, err := s.inUse.Lock(ctx, preparing(kind))
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
	err = s.db.CreateCollection(ctx, in.Name())
	existed := hasCode(err, codeNamespaceExists)
	if err != nil && !existed {
		return err
	}
	if err := s.ensureIndexes(ctx, in, sagaIndexes(in.Name()), existed); err != nil {
		return err
	}
	s.prepared.Store(kind, true)
	return nil
}

// sagasOf returns the collection of a type.
func (s *Store) sagasOf(kind string) (*driver.Collection, error) {
	name := s.config.SagaCollection(kind)
	own := slices.ContainsFunc(collectionNames, func(of string) bool { return s.config.CollectionName(of) == name })
	if own || !validCollection(name) {
		return nil, storekit.InvalidConfig("mongo.Config.SagaCollection gives %q for %q: want a collection's name, at most 100 bytes, without "+
			"$, that is none of the store's", name, kind)
	}
	return s.db.Collection(name), nil
}

// FindSaga reads a saga. See storekit.Sagas.
func (s *Store) FindSaga(ctx context.Context, kind, correlation string, state any, opts storekit.SagaOptions) (*storekit.Saga, error) {
	saga := &storekit.Saga{Type: kind, Correlation: correlation}
	err := s.sagaWork(ctx, "find saga", saga, opts, s.do, func(ctx context.Context, w sagaWork) error {
		if err := storekit.CheckSagaState(state); err != nil {
			return err
		}
		raw, err := w.in.FindOne(ctx, where(fieldCorrelation, correlation)).Raw()
		if errors.Is(err, driver.ErrNoDocuments) {
			return storekit.ErrSagaNotFound
		}
		if err != nil {
			return err
		}
		if err := w.readHead(raw); err != nil {
			return err
		}
		return decodeState(raw, state)
	})
	if err != nil {
		return nil, err
	}
	return saga, nil
}

// ListSagas lists sagas of one type. See storekit.Sagas.
func (s *Store) ListSagas(ctx context.Context, query storekit.SagaQuery, opts storekit.SagaOptions) (storekit.SagaPage, error) {
	const operation = "list sagas"
	page := storekit.SagaPage{Next: query.After}
	err := storekit.CheckListSagas(query)
	if err == nil && query.Type == "" {
		err = storekit.InvalidConfig("SagaQuery.Type is empty: want a type, because in MongoDB each type has a collection of its own")
	}
	if err != nil {
		return page, s.explain(ctx, operation, err)
	}
	err = s.sagaWork(ctx, operation, &storekit.Saga{Type: query.Type, Correlation: query.Type}, opts, s.do,
		func(ctx context.Context, w sagaWork) (err error) {
			page, err = storekit.PageOfSagas(query, func(id outmill.WorkItemID, limit int) ([]*storekit.Saga, error) {
				return w.before(ctx, id, limit)
			})
			return err
		})
	return page, err
}

// before returns sagas with smaller ids, the largest id first.
func (w sagaWork) before(ctx context.Context, id outmill.WorkItemID, limit int) ([]*storekit.Saga, error) {
	found, err := findAll[bson.Raw](ctx, w.in, where(fieldID, bson.D{{Key: "$lt", Value: uuid(id)}}),
		first(limit, bson.D{{Key: fieldID, Value: -1}}, w.version, fieldCorrelation, fieldFinished, fieldCreated, fieldUpdated))
	if err != nil {
		return nil, err
	}
	sagas := make([]*storekit.Saga, len(found))
	for i, raw := range found {
		var head sagaHead
		if err := bson.Unmarshal(raw, &head); err != nil {
			return nil, err
		}
		correlation, _ := raw.Lookup(fieldCorrelation).StringValueOK()
		version, _ := raw.Lookup(w.version).AsInt64OK()
		sagas[i] = &storekit.Saga{
			ID: outmill.WorkItemID(head.ID), Type: w.saga.Type, Correlation: correlation, Version: version, Finished: head.Finished,
			CreatedAt: utc(head.CreatedAt), UpdatedAt: utc(head.UpdatedAt),
		}
	}
	return sagas, nil
}

// InsertSaga stores a new saga. It reads before it writes, because an error of the server would
// end the transaction. See storekit.Sagas.
func (s *Store) InsertSaga(ctx context.Context, saga *storekit.Saga, state any, opts storekit.SagaOptions) error {
	const operation = "insert saga"
	fresh := *saga
	if fresh.ID.IsZero() {
		fresh.ID = outmill.NewWorkItemID()
	}
	document, err := encodeState(state, versionField(opts), s.config.MaxPayload)
	if err == nil {
		err = errors.Join(storekit.CheckSaga(saga.Type, saga.Correlation), checkVersionField(opts))
	}
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	if err := s.PrepareSagas(alone(ctx), saga.Type); err != nil {
		return err
	}
	err = s.sagaWork(ctx, operation, &fresh, opts, s.doOnce, func(ctx context.Context, w sagaWork) error {
		found, err := w.in.CountDocuments(ctx, where(fieldCorrelation, saga.Correlation))
		if err != nil {
			return err
		}
		if found > 0 {
			return storekit.ErrSagaExists
		}
		now, err := s.loadState(ctx)
		if err != nil {
			return err
		}
		fresh.Version, fresh.CreatedAt, fresh.UpdatedAt = 1, utc(now.Now), utc(now.Now)
		whole := append(w.head(fresh.Version), bson.E{Key: fieldCreated, Value: fresh.CreatedAt},
			bson.E{Key: fieldUpdated, Value: fresh.UpdatedAt})
		_, err = w.in.InsertOne(ctx, append(whole, document...))
		if driver.IsDuplicateKeyError(err) {
			err = errors.Join(storekit.ErrSagaExists, err)
		}
		return conflicting(err, storekit.ErrSagaExists)
	})
	if err == nil {
		*saga = fresh
	}
	return err
}

// UpdateSaga stores the state of a saga. See storekit.Sagas.
func (s *Store) UpdateSaga(ctx context.Context, saga *storekit.Saga, state any, opts storekit.SagaOptions) error {
	return s.sagaWork(ctx, "update saga", saga, opts, s.doOnce, func(ctx context.Context, w sagaWork) error {
		document, err := encodeState(state, w.version, s.config.MaxPayload)
		if err == nil && opts.KeepUnknown {
			if document, err = w.withUnknown(ctx, document, state); err == nil {
				err = checkSagaDocument(document)
			}
		}
		if err != nil {
			return err
		}
		// Only the update reads the server's time. All other values are literals.
		replacement := bson.D{{Key: "$replaceWith", Value: bson.D{{Key: "$mergeObjects", Value: bson.A{
			bson.D{{Key: "$literal", Value: append(w.head(saga.Version+1), document...)}},
			bson.D{{Key: fieldCreated, Value: "$" + fieldCreated}, {Key: fieldUpdated, Value: "$$NOW"}},
		}}}}}
		var stored sagaHead
		err = w.in.FindOneAndUpdate(ctx, w.filter(), driver.Pipeline{replacement},
			options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(ascending(fieldUpdated))).Decode(&stored)
		if errors.Is(err, driver.ErrNoDocuments) {
			return storekit.ErrSagaConflict
		}
		if err == nil {
			saga.Version, saga.UpdatedAt = saga.Version+1, utc(stored.UpdatedAt)
		}
		return conflicting(err, storekit.ErrSagaConflict)
	})
}

// DeleteSaga deletes a saga. See storekit.Sagas.
func (s *Store) DeleteSaga(ctx context.Context, saga *storekit.Saga, opts storekit.SagaOptions) error {
	return s.sagaWork(ctx, "delete saga", saga, opts, s.doOnce, func(ctx context.Context, w sagaWork) error {
		result, err := w.in.DeleteOne(ctx, w.filter())
		if err == nil && result.DeletedCount == 0 {
			err = storekit.ErrSagaConflict
		}
		return conflicting(err, storekit.ErrSagaConflict)
	})
}

// conflicting returns a conflict with an open transaction as the error as. It keeps the labels of
// the driver's error, so that the transaction is repeated for a while.
func conflicting(err, as error) error {
	if hasCode(err, codeWriteConflict) {
		return errors.Join(as, err)
	}
	return err
}

// DeleteFinishedSagas deletes sagas that finished long ago. See storekit.Sagas.
func (s *Store) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (deleted int, err error) {
	const operation = "delete finished sagas"
	if err := storekit.CheckDeleteFinishedSagas(kind, retention, limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	err = s.sagaWork(ctx, operation, &storekit.Saga{Type: kind, Correlation: kind}, storekit.SagaOptions{}, s.do,
		func(ctx context.Context, w sagaWork) error {
			// The filter compares with a literal. The server would compute an expression for each
			// saga.
			now, err := s.now(ctx)
			if err != nil {
				return err
			}
			over := bson.D{{Key: fieldFinished, Value: true}, {Key: fieldUpdated, Value: bson.D{{Key: "$lte", Value: now.Add(-retention)}}}}
			found, err := findAll[sagaHead](ctx, w.in, over, first(limit, ascending(fieldUpdated), fieldID))
			if err != nil || len(found) == 0 {
				deleted = 0
				return err
			}
			ids := make([]uuid, len(found))
			for i, f := range found {
				ids[i] = f.ID
			}
			result, err := w.in.DeleteMany(ctx, append(in(fieldID, ids), over...))
			if err == nil {
				deleted = int(result.DeletedCount)
			}
			return err
		})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// sagaWork has the arguments of an operation on sagas.
type sagaWork struct {
	in      *driver.Collection
	saga    *storekit.Saga
	version string
}

// sagaWork runs fn in the transaction of the context. If there is none, it runs fn by alone.
func (s *Store) sagaWork(ctx context.Context, operation string, saga *storekit.Saga, opts storekit.SagaOptions,
	alone func(ctx context.Context, operation string, fn func(ctx context.Context) error) error,
	fn func(ctx context.Context, w sagaWork) error,
) error {
	session, err := s.sessionOf(ctx)
	if err == nil {
		err = errors.Join(storekit.CheckSaga(saga.Type, saga.Correlation), checkVersionField(opts))
	}
	w := sagaWork{saga: saga, version: versionField(opts)}
	if err == nil {
		w.in, err = s.sagasOf(saga.Type)
	}
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	work := func(ctx context.Context) error { return fn(ctx, w) }
	if session != nil {
		return s.within(ctx, operation, session, work)
	}
	return alone(ctx, operation, work)
}

func (w sagaWork) head(version int64) bson.D {
	return bson.D{
		{Key: fieldID, Value: uuid(w.saga.ID)}, {Key: w.version, Value: version},
		{Key: fieldCorrelation, Value: w.saga.Correlation}, {Key: fieldFinished, Value: w.saga.Finished},
	}
}

func (w sagaWork) filter() bson.D {
	return bson.D{{Key: fieldID, Value: uuid(w.saga.ID)}, {Key: fieldCorrelation, Value: w.saga.Correlation},
		{Key: w.version, Value: w.saga.Version}}
}

func (w sagaWork) readHead(raw bson.Raw) error {
	var head sagaHead
	if err := bson.Unmarshal(raw, &head); err != nil {
		return err
	}
	version, ok := raw.Lookup(w.version).AsInt64OK()
	if !ok {
		return storekit.InvalidConfig("SagaOptions.VersionField is %q: the saga's document has no number there", w.version)
	}
	w.saga.ID, w.saga.Version, w.saga.Finished = outmill.WorkItemID(head.ID), version, head.Finished
	w.saga.CreatedAt, w.saga.UpdatedAt = utc(head.CreatedAt), utc(head.UpdatedAt)
	return nil
}

// withUnknown returns the document with the stored fields that the type of state does
// not have.
func (w sagaWork) withUnknown(ctx context.Context, document bson.D, state any) (bson.D, error) {
	raw, err := w.in.FindOne(ctx, w.filter()).Raw()
	if errors.Is(err, driver.ErrNoDocuments) {
		return nil, storekit.ErrSagaConflict
	}
	if err != nil {
		return nil, err
	}
	before := reflect.New(reflect.TypeOf(state).Elem()).Interface()
	if err := decodeState(raw, before); err != nil {
		return nil, err
	}
	known, err := encodeState(before, w.version, 0)
	if err != nil {
		return nil, err
	}
	var stored bson.D
	if err := bson.Unmarshal(raw, &stored); err != nil {
		return nil, err
	}
	stored = slices.DeleteFunc(stored, func(e bson.E) bool { return isReserved(e.Key, w.version) })
	return mergeDocuments(stored, known, document), nil
}

// mergeDocuments adds to next the fields of stored that known, which holds the fields that the
// type knows, does not have. As in the driver, the case of letters in a name does not matter.
func mergeDocuments(stored, known, next bson.D) bson.D {
	place := func(in bson.D, name string) int {
		return slices.IndexFunc(in, func(e bson.E) bool { return e.Key == name })
	}
	merged := slices.Clone(next)
	folded := func(in bson.D, name string) bool {
		return slices.ContainsFunc(in, func(e bson.E) bool { return strings.EqualFold(e.Key, name) })
	}
	for _, e := range stored {
		of, now := place(known, e.Key), place(merged, e.Key)
		switch {
		case of < 0 && now < 0 && !folded(known, e.Key) && !folded(next, e.Key):
			merged = append(merged, e)
		case of >= 0 && now >= 0:
			was, isOne := e.Value.(bson.D)
			seen, seenIs := known[of].Value.(bson.D)
			into, intoIs := merged[now].Value.(bson.D)
			if isOne && seenIs && intoIs {
				merged[now].Value = mergeDocuments(was, seen, into)
			}
		}
	}
	return merged
}

func isReserved(name, version string) bool {
	return slices.Contains([]string{fieldID, version, fieldCorrelation, fieldFinished, fieldCreated, fieldUpdated, fieldDelete}, name)
}

func versionField(opts storekit.SagaOptions) string {
	if opts.VersionField == "" {
		return defaultVersionField
	}
	return opts.VersionField
}

func checkVersionField(opts storekit.SagaOptions) error {
	name := opts.VersionField
	if strings.ContainsAny(name, "$.\x00") || len(name) > 100 || isReserved(name, "") && name != "" {
		return storekit.InvalidConfig("SagaOptions.VersionField is %q: want the name of a field, at most 100 bytes, without $ and dots, that "+
			"is none of the store's", name)
	}
	return nil
}

// encodeState returns the fields of a document for the state.
func encodeState(state any, version string, limit int) (bson.D, error) {
	if err := storekit.CheckSagaState(state); err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	encoder := bson.NewEncoder(bson.NewDocumentWriter(&buffer))
	encoder.UseJSONStructTags()
	if err := encoder.Encode(state); err != nil {
		return nil, storekit.SagaStateError(err)
	}
	if err := storekit.CheckSagaSize(buffer.Len(), limit); err != nil {
		return nil, err
	}
	var document bson.D
	if err := bson.Unmarshal(buffer.Bytes(), &document); err != nil {
		return nil, storekit.SagaStateError(err)
	}
	for _, e := range document {
		if isReserved(e.Key, version) {
			return nil, &outmill.InvalidRecordError{Index: -1, Field: "saga state",
				Reason: "has the field " + e.Key + ", which the store needs: give it another name by a bson tag"}
		}
	}
	return document, nil
}

// checkSagaDocument bounds the size of a document of state and unknown fields.
func checkSagaDocument(document bson.D) error {
	raw, err := bson.Marshal(document)
	if err != nil {
		return storekit.SagaStateError(err)
	}
	return storekit.CheckSagaSize(len(raw), maxDocument-documentSlack)
}

func decodeState(raw bson.Raw, state any) error {
	decoder := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
	decoder.UseJSONStructTags()
	if err := decoder.Decode(state); err != nil {
		return fmt.Errorf("%w: %w", storekit.ErrSagaState, err)
	}
	return nil
}
