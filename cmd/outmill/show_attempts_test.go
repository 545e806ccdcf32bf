package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestShow_NamesWorkerAttemptsAndWhatIsUnreadable(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &outmill.Record{
		Topic: "orders", Status: outmill.StatusLeased, Worker: "host:7", Unreadable: "column payload has a value of another type",
		History: []outmill.Attempt{{At: at, Worker: "host:1", Error: "two\nlines"}, {At: at}},
	}
	var text strings.Builder
	require.NoError(t, printRecord(&text, r, false))
	require.Contains(t, text.String(), "worker           host:7\n")
	require.Contains(t, text.String(), "unreadable       column payload has a value of another type\n")
	require.Contains(t, text.String(), "attempt          2026-01-02T03:04:05Z host:1: two")
	require.Equal(t, 2, strings.Count(text.String(), "\nattempt "))

	view, err := json.Marshal(viewOfOne(r, false))
	require.NoError(t, err)
	require.Contains(t, string(view), `"worker":"host:7"`)
	require.Contains(t, string(view), `"history":[{"at":"2026-01-02T03:04:05Z","worker":"host:1","error":"two\nlines"},`+
		`{"at":"2026-01-02T03:04:05Z"}]`)
	require.Contains(t, string(view), `"unreadable":"column payload`)
}
