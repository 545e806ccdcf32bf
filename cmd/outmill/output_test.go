package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestOutput(t *testing.T) {
	t.Parallel()

	t.Run("no text of a message controls the terminal or reverses what is printed, and JSON keeps it", func(t *testing.T) {
		t.Parallel()
		const nasty = "a\u202eb\u009b31mc\u0085d\u2066e\u200ff\x1b[1mg\x7fh\U000E0041i\u2028j"
		record := &outmill.Record{Topic: nasty, Key: nasty, LastError: nasty, Metadata: map[string]string{nasty: nasty}, Payload: []byte(nasty)}
		unseen := func(r rune) bool { return r != '\n' && storekit.Unseen(r) }
		var text bytes.Buffer
		require.NoError(t, printRecord(&text, record, true))
		require.Equal(t, -1, strings.IndexFunc(text.String(), unseen), "%q", text.String())
		var asJSON bytes.Buffer
		require.NoError(t, printJSON(&asJSON, record.Metadata))
		require.Equal(t, -1, strings.IndexFunc(asJSON.String(), unseen), "%q", asJSON.String())
		require.Contains(t, asJSON.String(), `\u202e`)
		var back map[string]string
		require.NoError(t, json.Unmarshal(asJSON.Bytes(), &back))
		require.Equal(t, record.Metadata, back)
	})
}
