package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/storekit"
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
	require.Contains(t, text.String(), "payload          none that can be read\n")
	require.Contains(t, text.String(), "attempt          2026-01-02T03:04:05Z host:1: two")
	require.Equal(t, 2, strings.Count(text.String(), "\nattempt "))

	view, err := json.Marshal(viewOfOne(r, false))
	require.NoError(t, err)
	require.Contains(t, string(view), `"worker":"host:7"`)
	require.Contains(t, string(view), `"history":[{"at":"2026-01-02T03:04:05Z","worker":"host:1","error":"two\nlines"},`+
		`{"at":"2026-01-02T03:04:05Z"}]`)
	require.Contains(t, string(view), `"unreadable":"column payload`)
}

func TestWhy_PrintsTheLastAttempts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	answer := monitor.Answer{Text: "The message has one record here.", Explanations: []monitor.Explanation{{
		Topic: "orders", Status: outmill.StatusDead, Reasons: []monitor.Reason{{Kind: "dead", Text: "It is dead."}},
		Attempts: []monitor.Attempt{{At: at, Worker: "host:1", Error: "two\nlines\x1b[31m"}, {At: at}},
	}}}
	var text strings.Builder
	require.NoError(t, printAnswer(&text, answer))
	require.Contains(t, text.String(), "  - It is dead.\n  Its last attempts:\n    2026-01-02T03:04:05Z host:1: two lines [31m\n"+
		"    2026-01-02T03:04:05Z\n")
	view, err := json.Marshal(answer)
	require.NoError(t, err)
	require.Contains(t, string(view), `"attempts":[{"at":"2026-01-02T03:04:05Z","worker":"host:1","error":"two`)
}

func TestList_NamesWhatIsUnreadable(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ lastError, unreadable, want string }{
		{"", "column key: want text, have a blob", "cannot be read: column key: want text, have a blob"},
		{"refused", "column key: want text, have a blob", "cannot be read: column key"},
		{storekit.UnreadableError + ": column key", "column key", storekit.UnreadableError},
		{"refused", "", "refused"},
		{"", "", ""},
	} {
		got := listedError(&outmill.Record{Status: outmill.StatusDead, LastError: one.lastError, Unreadable: one.unreadable})
		require.True(t, strings.HasPrefix(got, one.want), got)
		require.Equal(t, one.want == "", got == "")
	}
}
