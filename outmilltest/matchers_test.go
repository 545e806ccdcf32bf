package outmilltest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
)

func TestMatchers(t *testing.T) {
	t.Parallel()

	t.Run("A matcher", func(t *testing.T) {
		t.Parallel()
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		full := &outmill.Record{
			MessageID:     "m1",
			Topic:         orders,
			Key:           "k1",
			Payload:       []byte(`{"id": 9007199254740993, "lines": [1, 2.50], "note": null}`),
			Metadata:      map[string]string{"region": "north"},
			CorrelationID: "c1",
			CreatedAt:     now,
			DueAt:         now.Add(time.Hour),
		}
		atOnce := &outmill.Record{CreatedAt: now, DueAt: now}
		type order struct {
			ID    int64     `json:"id"`
			Lines []float64 `json:"lines"`
		}

		for name, c := range map[string]struct {
			rec     *outmill.Record
			match   outmilltest.Matcher
			because string
		}{
			"Any matches":              {full, outmilltest.Any(), ""},
			"All of nothing matches":   {full, outmilltest.All(), ""},
			"All matches where all do": {full, outmilltest.All(outmilltest.Key("k1"), outmilltest.MessageID("m1")), ""},
			"All names the first that does not": {full,
				outmilltest.All(outmilltest.Key("k1"), outmilltest.MessageID("m2"), outmilltest.Key("")), `message id is "m1", want "m2"`},
			"All refuses a nil matcher": {full, outmilltest.All(nil), "the matcher is nil"},
			"MessageID matches":         {full, outmilltest.MessageID("m1"), ""},
			"MessageID differs":         {full, outmilltest.MessageID("M1"), `message id is "m1", want "M1"`},
			"Key matches":               {full, outmilltest.Key("k1"), ""},
			"Key differs":               {full, outmilltest.Key(""), `key is "k1", want ""`},
			"Metadata matches":          {full, outmilltest.Metadata("region", "north"), ""},
			"Metadata differs": {full, outmilltest.Metadata("region", "south"),
				`metadata "region" is "north", want "south"`},
			"Metadata that is not there":        {full, outmilltest.Metadata("zone", "1"), `metadata "zone" is "", want "1"`},
			"Metadata finds what has a column":  {full, outmilltest.Metadata(outmill.MetadataCorrelationID, "c1"), ""},
			"Metadata of a message without any": {atOnce, outmilltest.Metadata("region", ""), ""},
			"Payload matches":                   {&outmill.Record{Payload: []byte{0, 1}}, outmilltest.Payload([]byte{0, 1}), ""},
			"Payload differs, not text": {&outmill.Record{Payload: []byte{0, 1}}, outmilltest.Payload([]byte{0xff}),
				`payload is "\x00\x01", want "\xff"`},
			"Payload nil":              {&outmill.Record{}, outmilltest.Payload(nil), ""},
			"Payload empty":            {&outmill.Record{Payload: []byte{}}, outmilltest.Payload([]byte{}), ""},
			"Payload nil, not empty":   {&outmill.Record{Payload: []byte{}}, outmilltest.Payload(nil), `payload is "", want nil`},
			"Payload empty, not nil":   {&outmill.Record{}, outmilltest.Payload([]byte{}), `payload is nil, want ""`},
			"Payload differs from nil": {&outmill.Record{Payload: []byte("a")}, outmilltest.Payload(nil), `payload is a, want nil`},
			"PayloadJSON matches text": {full, outmilltest.PayloadJSON(`{"note":null,"lines":[1,2.50],"id":9007199254740993}`), ""},
			"PayloadJSON matches bytes": {full,
				outmilltest.PayloadJSON([]byte(`{"note":null,"lines":[1,2.50],"id":9007199254740993}`)), ""},
			"PayloadJSON matches raw JSON": {full,
				outmilltest.PayloadJSON(json.RawMessage(`{"note":null,"lines":[1,2.50],"id":9007199254740993}`)), ""},
			"PayloadJSON matches a value": {&outmill.Record{Payload: []byte(`{"lines":[1,2.5],"id":7}`)},
				outmilltest.PayloadJSON(order{7, []float64{1, 2.5}}), ""},
			"PayloadJSON tells close numbers apart": {&outmill.Record{Payload: []byte(`9007199254740993`)},
				outmilltest.PayloadJSON(`9007199254740992`), `payload is 9007199254740993, want the JSON 9007199254740992`},
			"PayloadJSON tells null from nothing": {&outmill.Record{Payload: []byte(`{"a":null}`)}, outmilltest.PayloadJSON(`{}`),
				`payload is {"a":null}, want the JSON {}`},
			"PayloadJSON of what is not JSON": {&outmill.Record{Payload: []byte(`hello`)}, outmilltest.PayloadJSON(`{}`),
				"payload is not JSON: hello: invalid character 'h' looking for beginning of value"},
			"PayloadJSON of two values": {&outmill.Record{Payload: []byte(`1 2`)}, outmilltest.PayloadJSON(`1`),
				"payload is not JSON: 1 2: more follows after the first value"},
			"PayloadJSON of nothing": {&outmill.Record{}, outmilltest.PayloadJSON(`{}`), `payload is not JSON: nil: EOF`},
			"PayloadJSON asked for what is not JSON": {full, outmilltest.PayloadJSON(`{`),
				"PayloadJSON got a value that is not JSON: {: unexpected EOF"},
			"PayloadJSON asked for what is not a value": {full, outmilltest.PayloadJSON(func() {}),
				"PayloadJSON got a value that is not JSON: json: unsupported type: func()"},
			"DueAtOnce matches":            {atOnce, outmilltest.DueAtOnce(), ""},
			"DueAtOnce of an earlier time": {&outmill.Record{CreatedAt: now, DueAt: now.Add(-time.Hour)}, outmilltest.DueAtOnce(), ""},
			"DueAtOnce of a delay":         {full, outmilltest.DueAtOnce(), "is due 1h0m0s after it was published, want at once"},
			"DueIn matches exactly":        {full, outmilltest.DueIn(time.Hour, 0), ""},
			"DueIn matches about":          {full, outmilltest.DueIn(59*time.Minute, time.Minute), ""},
			"DueIn is earlier": {full, outmilltest.DueIn(2*time.Hour, time.Minute),
				"is due 1h0m0s after it was published, want 2h0m0s within 1m0s"},
			"DueIn is later": {full, outmilltest.DueIn(time.Minute, time.Minute),
				"is due 1h0m0s after it was published, want 1m0s within 1m0s"},
			"DueAt matches about": {full, outmilltest.DueAt(now.Add(59*time.Minute), time.Minute), ""},
			"DueAt is earlier": {full, outmilltest.DueAt(now.Add(2*time.Hour), time.Minute),
				"is due at 2030-01-02T04:04:05Z, want 2030-01-02T05:04:05Z within 1m0s"},
			"DueAt is later": {full, outmilltest.DueAt(now, time.Minute),
				"is due at 2030-01-02T04:04:05Z, want 2030-01-02T03:04:05Z within 1m0s"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				require.Equal(t, c.because, c.match(c.rec))
			})
		}

		t.Run("changes no record", func(t *testing.T) {
			t.Parallel()
			r := &outmill.Record{Key: "k", Metadata: map[string]string{"a": "b"}}
			require.Empty(t, outmilltest.Metadata(outmill.MetadataKey, "k")(r))
			require.Equal(t, map[string]string{"a": "b"}, r.Metadata)
		})

		t.Run("shows the beginning of a long payload, cut between two characters", func(t *testing.T) {
			t.Parallel()
			r := &outmill.Record{Payload: []byte("a" + strings.Repeat("é", 1000))}
			want := "payload is a" + strings.Repeat("é", 249) + `… (2001 bytes), want nil`
			require.Equal(t, want, outmilltest.Payload(nil)(r))
		})

		t.Run("quotes a long payload that is not text", func(t *testing.T) {
			t.Parallel()
			r := &outmill.Record{Payload: []byte(strings.Repeat("\x80", 1000))}
			require.Contains(t, outmilltest.Payload(nil)(r), `\x80"… (1000 bytes)`)
		})
	})
}
