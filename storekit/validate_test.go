package storekit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func goodRecord() *outmill.Record {
	return &outmill.Record{MessageID: "m-1", Topic: "orders"}
}

// textFields are the text columns with their limits, in UTF-16 units.
var textFields = []struct {
	name  string
	limit int
	set   func(*outmill.Record, string)
	// asName says that stores compare the field with =, so it must have no blanks at the ends.
	asName bool
}{
	{"topic", 255, func(r *outmill.Record, s string) { r.Topic = s }, true},
	{"key", 255, func(r *outmill.Record, s string) { r.Key = s }, true},
	{"dedup key", 255, func(r *outmill.Record, s string) { r.DedupKey = s }, true},
	{"message id", 255, func(r *outmill.Record, s string) { r.MessageID = s }, false},
	{"correlation id", 255, func(r *outmill.Record, s string) { r.CorrelationID = s }, false},
	{"causation id", 255, func(r *outmill.Record, s string) { r.CausationID = s }, false},
	{"tenant id", 255, func(r *outmill.Record, s string) { r.TenantID = s }, false},
	{"traceparent", 255, func(r *outmill.Record, s string) { r.TraceParent = s }, false},
	{"tracestate", 1020, func(r *outmill.Record, s string) { r.TraceState = s }, false},
}

func TestValidate(t *testing.T) {
	t.Parallel()

	t.Run("every text field", func(t *testing.T) {
		t.Parallel()
		for _, field := range textFields {
			check := func(value string) error {
				rec := goodRecord()
				field.set(rec, value)
				return storekit.CheckRecords([]*outmill.Record{rec}, 0)
			}
			refused := func(t *testing.T, value, reason string) {
				t.Helper()
				var invalid *outmill.InvalidRecordError
				err := check(value)
				require.ErrorAs(t, err, &invalid)
				require.ErrorIs(t, err, outmill.ErrInvalidRecord)
				require.Equal(t, field.name, invalid.Field)
				require.Equal(t, 0, invalid.Index)
				require.Contains(t, invalid.Reason, reason)
			}
			t.Run(field.name+" is counted in UTF-16 units", func(t *testing.T) {
				t.Parallel()
				tooMany := fmt.Sprintf("has %d characters: want at most %d", field.limit+1, field.limit)
				require.NoError(t, check(strings.Repeat("x", field.limit)))
				refused(t, strings.Repeat("x", field.limit+1), tooMany)
				require.NoError(t, check(strings.Repeat("ü", field.limit)), "two bytes, one unit")
				require.NoError(t, check(strings.Repeat("漢", field.limit)), "three bytes, one unit")
				astral := strings.Repeat("😀", field.limit/2)
				require.NoError(t, check(astral), "four bytes, two units")
				refused(t, astral+"xx", "want at most")
			})
			t.Run(field.name+" has neither NUL nor invalid UTF-8", func(t *testing.T) {
				t.Parallel()
				refused(t, "a\x00b", "NUL")
				refused(t, "a\xffb", "UTF-8")
				refused(t, "\xed\xa0\x80", "UTF-8")
			})
			t.Run(field.name+" and blanks at its ends", func(t *testing.T) {
				t.Parallel()
				for _, blank := range []string{" ", "\t", "\n", "\u00a0", "\u0085", "\u2003", "\u3000"} {
					require.NoError(t, check("a"+blank+"b"), "in the middle")
					for _, value := range []string{blank + "a", "a" + blank, blank} {
						if field.asName {
							refused(t, value, "blank")
						} else {
							require.NoError(t, check(value))
						}
					}
				}
			})
		}
	})

	t.Run("a topic is needed and nothing else", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, storekit.CheckRecords([]*outmill.Record{goodRecord()}, 0))
		rec := goodRecord()
		rec.Topic = ""
		require.ErrorContains(t, storekit.CheckRecords([]*outmill.Record{rec}, 0), "topic is empty: want 1 to 255 characters")
		require.NoError(t, storekit.CheckRecords(nil, 0))
	})

	t.Run("the payload is measured in bytes against the limit of the store", func(t *testing.T) {
		t.Parallel()
		rec := goodRecord()
		rec.Payload = []byte("cards")
		records := []*outmill.Record{rec}
		require.NoError(t, storekit.CheckRecords(records, 0), "no limit")
		require.NoError(t, storekit.CheckRecords(records, 5))
		err := storekit.CheckRecords(records, 4)
		require.ErrorContains(t, err, "payload has 5 bytes: the store takes at most 4")
		require.NotContains(t, err.Error(), "cards")
		rec.Payload = nil
		require.NoError(t, storekit.CheckRecords(records, 4), "nil and empty are fine")
	})

	t.Run("times must be storable in every engine", func(t *testing.T) {
		t.Parallel()
		for _, year := range []int{1, 1969, 9999} {
			rec := goodRecord()
			rec.DueAt = time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
			rec.ExpiresAt = rec.DueAt
			require.NoError(t, storekit.CheckRecords([]*outmill.Record{rec}, 0))
		}
		for _, year := range []int{-5, 0, 10000, 292277026596} {
			rec := goodRecord()
			rec.DueAt = time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
			rec.ExpiresAt = rec.DueAt
			err := storekit.CheckRecords([]*outmill.Record{rec}, 0)
			require.ErrorContains(t, err, "due at is in the year")
			require.ErrorContains(t, err, "expires at is in the year")
		}
		lastHour := goodRecord()
		lastHour.DueAt = time.Date(9999, 12, 31, 23, 30, 0, 0, time.FixedZone("west", -3600))
		require.ErrorContains(t, storekit.CheckRecords([]*outmill.Record{lastHour}, 0), "year 10000", "counted in UTC")
	})

	t.Run("all violations are joined each with its index", func(t *testing.T) {
		t.Parallel()
		records := []*outmill.Record{
			goodRecord(),
			{Topic: "", Key: " k", Delay: -time.Second, TimeToLive: -1},
			nil,
			goodRecord(),
			{Topic: "orders", Metadata: map[string]string{"good": "bad\x00", "bad\xff": "good"}},
		}
		err := storekit.CheckRecords(records, 0)
		var found []string
		for _, e := range joined(err) {
			var invalid *outmill.InvalidRecordError
			require.ErrorAs(t, e, &invalid)
			found = append(found, fmt.Sprintf("%d %s", invalid.Index, invalid.Field))
		}
		require.Equal(t, []string{
			"1 delay", "1 key", "1 time to live", "1 topic",
			"2 record",
			`4 metadata "good"`, `4 metadata name "bad\xff"`,
		}, found)
		require.ErrorContains(t, err, "outmill: invalid record 2: record is nil")
	})

	t.Run("checking does not change a record", func(t *testing.T) {
		t.Parallel()
		rec := &outmill.Record{Topic: " t ", Metadata: map[string]string{"a": "\x00"}}
		require.Error(t, storekit.CheckRecords([]*outmill.Record{rec}, 0))
		require.Equal(t, &outmill.Record{Topic: " t ", Metadata: map[string]string{"a": "\x00"}}, rec)
	})

	t.Run("a huge metadata name does not make a huge error", func(t *testing.T) {
		t.Parallel()
		rec := goodRecord()
		rec.Metadata = map[string]string{strings.Repeat("ü", 1<<20): "\x00"}
		err := storekit.CheckRecords([]*outmill.Record{rec}, 0)
		require.Error(t, err)
		require.Less(t, len(err.Error()), 1000)
		require.True(t, utf8.ValidString(err.Error()))
	})

	t.Run("an error without an index names none", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, storekit.CheckTopic(""), "outmill: invalid record: topic is empty: want 1 to 255 characters")
		require.EqualError(t, storekit.CheckGroup("a "), "outmill: invalid record: group begins or ends with a blank: trim it")
		require.False(t, errors.Is(storekit.CheckTopic(""), outmill.ErrInvalidConfig))
	})

	t.Run("the empty group is the default one", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, storekit.CheckGroup(""))
		require.NoError(t, storekit.CheckGroup("forwarder"))
		require.ErrorIs(t, storekit.CheckGroup("a\x00"), outmill.ErrInvalidRecord)
		require.ErrorIs(t, storekit.CheckGroup(strings.Repeat("g", 256)), outmill.ErrInvalidRecord)
	})

	t.Run("a topic is accepted exactly when the rules say so", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			topic := rapid.OneOf(
				rapid.String(),
				rapid.StringOfN(rapid.RuneFrom([]rune("aü漢😀 ")), 120, 260, -1),
				rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) }),
			).Draw(t, "topic")
			want := utf8.ValidString(topic) && topic != "" && !strings.Contains(topic, "\x00") &&
				strings.TrimSpace(topic) == topic && len(utf16.Encode([]rune(topic))) <= 255
			require.Equal(t, want, storekit.CheckTopic(topic) == nil)
		})
	})

	t.Run("metadata has a largest size", func(t *testing.T) {
		t.Parallel()
		rec := goodRecord()
		rec.Metadata = map[string]string{"data": strings.Repeat("x", outmill.MaxMetadataBytes-len("data"))}
		require.NoError(t, storekit.CheckRecords([]*outmill.Record{rec}, 0))
		rec.Metadata["data"] += "x"
		err := storekit.CheckRecords([]*outmill.Record{rec}, 0)
		require.ErrorIs(t, err, outmill.ErrInvalidRecord)
		require.ErrorContains(t, err, "metadata has 4194305 bytes: want at most 4194304")
	})
}
