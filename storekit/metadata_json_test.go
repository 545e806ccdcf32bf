package storekit_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func FuzzParse_reads_what_the_library_reads(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { } `, `{"a":"b"}`, `{"a": "b", "c": "d:e,f{}"}`, `{"a":"\u0041\n"}`, `{"a":1}`, `{"a":null}`, `null`, `[]`, `"a"`, ``,
		`{"a":"b"`, `{"a":"b",}`, `{"a":"b"}x`, `{"a":"b","a":"c"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\n\"}", `{"ä":"ö"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]string
		wantErr := json.Unmarshal(text, &want)
		got, err := storekit.ParseMetadata(text)
		require.Equal(t, wantErr == nil, err == nil, "%q: %v, want %v", text, err, wantErr)
		if wantErr == nil {
			require.Equal(t, want, got, "%q", text)
		}
		list, err := storekit.AppendMetadata(nil, string(text))
		require.Equal(t, wantErr == nil, err == nil, "%q: %v, want %v", text, err, wantErr)
		if wantErr == nil {
			require.Len(t, list, len(want), "%q", text)
			for _, e := range list {
				require.Equal(t, want[e.Name], e.Value, "%q", text)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := []byte(`{"name": "order.placed", "schema": "https://example.com/orders/3"}`)
	b.Run("package", func(b *testing.B) {
		for b.Loop() {
			if _, err := storekit.ParseMetadata(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		for b.Loop() {
			var parsed map[string]string
			if err := json.Unmarshal(text, &parsed); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func FuzzMetadataText_writes_what_the_library_writes(f *testing.F) {
	for _, text := range []string{"", "a", "ä", "\u2028", "\xff", "<", ">", "&", `"`, `\`, "\n", "\x1f", "\x7f", "b c"} {
		f.Add(text, "value", "name", text)
		f.Add("name", text, text, "value")
	}
	f.Fuzz(func(t *testing.T, name, value, other, more string) {
		metadata := map[string]string{name: value, other: more}
		want, err := json.Marshal(metadata)
		require.NoError(t, err)
		text, err := storekit.MetadataText(metadata)
		require.NoError(t, err)
		require.Equal(t, string(want), text)
		many := map[string]string{}
		for i := range 20 {
			many[name+string(rune('a'+i))] = value
		}
		want, err = json.Marshal(many)
		require.NoError(t, err)
		text, err = storekit.MetadataText(many)
		require.NoError(t, err)
		require.Equal(t, string(want), text)
	})
}
