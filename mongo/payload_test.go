package mongo_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
)

// kindsOf returns the type of each stored payload, by message id.
func kindsOf(t require.TestingT, ctx context.Context, s stand) map[string]bson.Type {
	cursor, err := s.records().Find(ctx, bson.D{})
	require.NoError(t, err)
	var found []struct {
		Content struct {
			MessageID string        `bson:"message"`
			Payload   bson.RawValue `bson:"payload"`
		} `bson:"content"`
	}
	require.NoError(t, cursor.All(ctx, &found))
	kinds := map[string]bson.Type{}
	for _, d := range found {
		kinds[d.Content.MessageID] = d.Content.Payload.Type
	}
	return kinds
}

func TestStore_Payload(t *testing.T) {
	t.Parallel()

	t.Run("EmbedJSON stores a payload that is a JSON object as a document", func(t *testing.T) {
		t.Parallel()
		deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
		cases := map[string]struct {
			payload string
			binary  bool
		}{
			"object":                {payload: `{"id":"o-1","cents":1999,"lines":[{"sku":"a","n":2},{}],"paid":true,"note":null,"tags":[]}`},
			"empty object":          {payload: `{}`},
			"large integers":        {payload: `{"n":9223372036854775807,"m":-9223372036854775808,"k":2147483648}`},
			"numbers":               {payload: `{"a":0.1,"b":-0,"c":1e+21,"d":10.50,"e":18446744073709551616,"f":1E+3}`},
			"escaped for HTML":      {payload: `{"html":"\u003cb\u003e \u0026 \u2028"}`},
			"not escaped for HTML":  {payload: `{"html":"<b> & ü \" \\ \n"}`},
			"escaped both ways":     {payload: `{"html":"\u003cb>"}`, binary: true},
			"escapes of others":     {payload: `{"a":"\u00fc \/"}`, binary: true},
			"spaces":                {payload: `{"a": 1}`, binary: true},
			"a line's end":          {payload: "{\"a\":1}\n", binary: true},
			"a number with a point": {payload: `{"a":1e3}`, binary: true},
			"too many digits":       {payload: `{"a":1.00000000000000000000000000000000000000000000001}`, binary: true},
			"a field twice":         {payload: `{"a":1,"a":2}`, binary: true},
			"a field with a dollar": {payload: `{"$set":{"a":1}}`, binary: true},
			"a field with a dot":    {payload: `{"x":{"a.b":1}}`, binary: true},
			"a field with a NUL":    {payload: `{"a\u0000":1}`, binary: true},
			"a field with no name":  {payload: `{"":1}`, binary: true},
			"too deep":              {payload: deep, binary: true},
			"an array":              {payload: `[{"a":1}]`, binary: true},
			"a string":              {payload: `"a"`, binary: true},
			"cut off":               {payload: `{"a":`, binary: true},
			"two objects":           {payload: `{}{}`, binary: true},
			"no UTF-8":              {payload: "{\"a\":\"\xff\"}", binary: true},
			"half a character":      {payload: `{"a":"\ud800"}`, binary: true},
			"empty":                 {payload: "", binary: true},
			"larger as a document":  {payload: `{"a":[` + strings.Repeat("1,", 30_000) + `1]}`, binary: true},
		}
		s := newStand(t, mongo.Config{EmbedJSON: true, MaxPayload: 64 << 10})
		for name, c := range cases {
			record := one(name)
			record.Payload = []byte(c.payload)
			require.NoError(t, s.Append(t.Context(), record))
		}
		for name, kind := range kindsOf(t, t.Context(), s) {
			want := bson.TypeEmbeddedDocument
			if cases[name].binary {
				want = bson.TypeBinary
			}
			require.Equal(t, want, kind, name)
		}
		// A reader may have another setting.
		found := claimed(t, newStore(t, s.Client(), mongo.Config{Database: s.db.Name()}),
			claimOf(outmill.NewOwnerToken(), len(cases), outmill.OrderNone))
		require.Len(t, found, len(cases))
		for _, r := range found {
			require.Equal(t, cases[r.MessageID].payload, string(r.Payload), r.MessageID)
		}
	})

	t.Run("a payload is binary without EmbedJSON", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		record := one("binary")
		record.Payload = []byte(`{"a":1}`)
		require.NoError(t, s.Append(t.Context(), record))
		require.Equal(t, bson.TypeBinary, kindsOf(t, t.Context(), s)["binary"])
	})

	t.Run("a payload that somebody has changed does not stop the readers", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{EmbedJSON: true})
		record := one("changed")
		record.Payload = []byte(`{"a":1}`)
		require.NoError(t, s.Append(t.Context(), record))
		_, err := s.Database().Collection("outmill_records").UpdateMany(t.Context(), bson.D{},
			bson.D{{Key: "$set", Value: bson.D{{Key: "content.payload.b", Value: math.NaN()}}}})
		require.NoError(t, err)
		found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.Len(t, found, 1)
		require.Contains(t, string(found[0].Payload), "NaN")
	})

	t.Run("a document gives every JSON object that Go writes back byte for byte", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{EmbedJSON: true})
		ctx, owner := t.Context(), outmill.NewOwnerToken()
		rapid.Check(t, func(t *rapid.T) {
			payload, err := json.Marshal(rapid.MapOf(names, jsonValue(3)).Draw(t, "object"))
			require.NoError(t, err)
			record := one("any")
			record.Payload = payload
			require.NoError(t, s.Append(ctx, record))
			require.Equal(t, bson.TypeEmbeddedDocument, kindsOf(t, ctx, s)["any"])
			found, err := s.Claim(ctx, claimOf(owner, 10, outmill.OrderNone))
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, string(payload), string(found[0].Payload))
			require.NoError(t, s.Ack(ctx, "", leasesOf(found)))
		})
	})
}

// names generates names that a field of a document may have.
var names = rapid.String().Filter(func(name string) bool {
	return name != "" && !strings.HasPrefix(name, "$") && !strings.ContainsAny(name, ".\x00")
})

func jsonValue(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
	}
	if depth > 0 {
		kinds = append(kinds, rapid.SliceOf(jsonValue(depth-1)).AsAny(), rapid.MapOf(names, jsonValue(depth-1)).AsAny())
	}
	return rapid.OneOf(kinds...)
}
