package sagas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// withUnknown returns the document with the stored fields that the type of state does
// not have.
func (w sagaWork) withUnknown(ctx context.Context, document bson.D, state any) (bson.D, error) {
	raw, err := w.in.FindOne(ctx, w.filter()).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, w.unmatched(ctx)
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

func versionField(opts roles.SagaOptions) string {
	if opts.VersionField == "" {
		return defaultVersionField
	}
	return opts.VersionField
}

func checkVersionField(opts roles.SagaOptions) error {
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

// mostDocument is MongoDB's limit of 16 MiB, less some room.
const mostDocument = 16<<20 - 64<<10

// checkSagaDocument bounds the size of a document of state and unknown fields.
func checkSagaDocument(document bson.D) error {
	raw, err := bson.Marshal(document)
	if err != nil {
		return storekit.SagaStateError(err)
	}
	return storekit.CheckSagaSize(len(raw), mostDocument)
}

func decodeState(raw bson.Raw, state any) error {
	decoder := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
	decoder.UseJSONStructTags()
	if err := decoder.Decode(state); err != nil {
		return fmt.Errorf("%w: %w", roles.ErrSagaState, err)
	}
	return nil
}
