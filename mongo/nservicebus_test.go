package mongo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/roles"
)

// orderPolicy is the state of a saga of NServiceBus, with the names of its properties in C#.
type orderPolicy struct {
	OrderID string `bson:"OrderId"`
	Placed  bool   `bson:"IsOrderPlaced"`
	Lines   []struct {
		Product string `bson:"Product"`
		Count   int    `bson:"Count"`
	} `bson:"Lines"`
}

// guid is a Guid as MongoDB's driver for .NET stores it, and the text that .NET prints for it.
type guid struct {
	stored bson.Binary
	text   string
}

func guids() map[string]guid {
	const text = "00112233-4455-6677-8899-aabbccddeeff"
	return map[string]guid{
		"subtype 4": {bson.Binary{Subtype: 4, Data: []byte("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff")}, text},
		"subtype 3": {bson.Binary{Subtype: 3, Data: []byte("\x33\x22\x11\x00\x55\x44\x77\x66\x88\x99\xaa\xbb\xcc\xdd\xee\xff")}, text},
	}
}

// written is a document as NServiceBus writes it.
func written(id any, order string) bson.D {
	return bson.D{
		{Key: "_id", Value: id}, {Key: "Originator", Value: "Sales@HOST"},
		{Key: "OriginalMessageId", Value: "b3c1a2f0-0000-0000-0000-000000000001"},
		{Key: "OrderId", Value: order}, {Key: "IsOrderPlaced", Value: true},
		{Key: "Lines", Value: bson.A{bson.D{{Key: "Product", Value: "Tea"}, {Key: "Count", Value: int32(2)}}}},
		{Key: "_version", Value: int32(3)},
	}
}

// adopt is the statement of docs/sagas.md.
func adopt(t *testing.T, in *driver.Collection) {
	t.Helper()
	_, err := in.UpdateMany(t.Context(), bson.D{{Key: "_correlation", Value: bson.D{{Key: "$exists", Value: false}}}}, driver.Pipeline{
		{{Key: "$set", Value: bson.D{{Key: "_correlation", Value: bson.D{{Key: "$toString", Value: "$OrderId"}}}}}}})
	require.NoError(t, err)
}

func TestSagas_OfNServiceBus(t *testing.T) {
	t.Parallel()
	for name, id := range guids() {
		for _, options := range []roles.SagaOptions{{}, {KeepUnknown: true}} {
			what := fmt.Sprintf("a document whose id has %s is found and stored under the same id, KeepUnknown %v", name, options.KeepUnknown)
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				s, in := newSagas(t)
				_, err := in.InsertOne(t.Context(), written(id.stored, "42"))
				require.NoError(t, err)
				require.ErrorIs(t, s.PrepareSagas(t.Context(), in.Name()), roles.ErrSagaUnkeyed)
				adopt(t, in)
				require.NoError(t, s.PrepareSagas(t.Context(), in.Name()))

				var state orderPolicy
				saga, err := s.FindSaga(t.Context(), in.Name(), "42", &state, options)
				require.NoError(t, err)
				require.Equal(t, id.text, saga.ID.String())
				require.EqualValues(t, 3, saga.Version)
				require.True(t, state.Placed)
				require.Equal(t, "Tea", state.Lines[0].Product)
				state.Placed = false
				require.NoError(t, s.UpdateSaga(t.Context(), saga, &state, options))
				require.EqualValues(t, 4, saga.Version)

				var stored bson.D
				require.NoError(t, in.FindOne(t.Context(), bson.D{}).Decode(&stored))
				fields := map[string]any{}
				for _, e := range stored {
					fields[e.Key] = e.Value
				}
				require.Equal(t, id.stored, fields["_id"])
				require.Equal(t, int32(4), fields["_version"], "NServiceBus reads an Int32")
				require.Equal(t, false, fields["IsOrderPlaced"])
				require.Equal(t, "42", fields["OrderId"])
				require.Equal(t, options.KeepUnknown, fields["Originator"] == "Sales@HOST")

				stale := *saga
				stale.Version = 3
				require.ErrorIs(t, s.UpdateSaga(t.Context(), &stale, &state, options), roles.ErrSagaConflict)
				require.NoError(t, s.DeleteSaga(t.Context(), saga, options))
				_, err = s.FindSaga(t.Context(), in.Name(), "42", &state, options)
				require.ErrorIs(t, err, roles.ErrSagaNotFound)
			})
		}
	}
	t.Run("a list has the documents of both kinds of ids, each once, in pages of any size", func(t *testing.T) {
		t.Parallel()
		s, in := newSagas(t)
		for i := range 4 {
			for subtype := range byte(2) {
				data := []byte(fmt.Sprintf("id %d of 16 bytes", i))
				_, err := in.InsertOne(t.Context(), written(bson.Binary{Subtype: 3 + subtype, Data: data}, fmt.Sprint(i, "of", 3+subtype)))
				require.NoError(t, err)
			}
		}
		adopt(t, in)
		for limit := 1; limit < 10; limit++ {
			seen := map[string]int{}
			query := roles.SagaQuery{Type: in.Name(), Limit: limit}
			for done := false; !done; {
				page, err := s.ListSagas(t.Context(), query, roles.SagaOptions{})
				require.NoError(t, err)
				for _, saga := range page.Sagas {
					seen[saga.Correlation]++
				}
				query.After, done = page.Next, page.Done
			}
			require.Len(t, seen, 8, "pages of %d", limit)
			for correlation, times := range seen {
				require.Equal(t, 1, times, correlation)
			}
		}
	})
	t.Run("a document whose id is of another kind is an error that counts, and no conflict", func(t *testing.T) {
		t.Parallel()
		s, in := newSagas(t)
		_, err := in.InsertOne(t.Context(), written(bson.Binary{Subtype: 0, Data: []byte("0123456789abcdef")}, "42"))
		require.NoError(t, err)
		adopt(t, in)
		var state orderPolicy
		saga, err := s.FindSaga(t.Context(), in.Name(), "42", &state, roles.SagaOptions{})
		require.NoError(t, err)
		for _, err := range []error{
			s.UpdateSaga(t.Context(), saga, &state, roles.SagaOptions{}),
			s.UpdateSaga(t.Context(), saga, &state, roles.SagaOptions{KeepUnknown: true}),
			s.DeleteSaga(t.Context(), saga, roles.SagaOptions{}),
		} {
			require.ErrorContains(t, err, "binary of subtype 0")
			require.NotErrorIs(t, err, roles.ErrSagaConflict)
		}
	})
}
