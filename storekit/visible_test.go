package storekit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill/storekit"
)

func TestVisibleJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nasty := rapid.SampledFrom([]rune("a\u202e\u009b\u0085\u2028\u200f\x7f\x1b\"\\\U000E0041\uFEFF"))
		text := rapid.OneOf(rapid.String(), rapid.StringOf(nasty)).Draw(t, "text")
		encoded, err := json.MarshalIndent(map[string]string{"text": text}, "", "\t")
		require.NoError(t, err)
		shown := storekit.VisibleJSON(string(encoded))
		require.Equal(t, -1, strings.IndexFunc(shown, func(r rune) bool { return r != '\n' && r != '\t' && storekit.Unseen(r) }))
		var back map[string]string
		require.NoError(t, json.Unmarshal([]byte(shown), &back))
		var want map[string]string
		require.NoError(t, json.Unmarshal(encoded, &want))
		require.Equal(t, want, back)
	})
}
