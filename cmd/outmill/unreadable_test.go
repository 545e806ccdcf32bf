package main

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// breakRecord writes a value by hand that the store cannot read.
func (w world) breakRecord(t *testing.T, r *outmill.Record, column, value string) {
	t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(w.url, "sqlite:"))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.ExecContext(t.Context(), "UPDATE outmill_records SET "+column+" = "+value+" WHERE id = ?", r.ID.String())
	require.NoError(t, err)
}

func (w world) claimOne(t *testing.T) []*outmill.Record {
	t.Helper()
	found, err := w.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "billing", Limit: 10, Lease: time.Hour})
	require.NoError(t, err)
	return found
}

func TestUnreadable(t *testing.T) {
	t.Parallel()

	// broken has a dead record that the store cannot read, and a good one behind it that was delivered.
	broken := func(t *testing.T, column, value string) (w world, id string) {
		t.Helper()
		w = newWorld(t)
		w.register(t, "billing", "orders")
		bad := &outmill.Record{Topic: "orders", MessageID: "bad", Payload: []byte("S3CRET"), Metadata: map[string]string{"a": "b"}}
		w.append(t, bad, &outmill.Record{Topic: "orders", MessageID: "good"})
		w.breakRecord(t, bad, column, value)
		require.Contains(t, ok(t, "show", w.url, bad.ID.String()), "column "+column)
		found := w.claimOne(t)
		require.Len(t, found, 1)
		require.NoError(t, w.Ack(t.Context(), "", []outmill.Lease{found[0].Lease()}))
		return w, bad.ID.String()
	}

	for column, value := range map[string]string{"payload": "12", "metadata": "'[1]'", "created_at": "'yesterday'", "key": "x'6b'"} {
		t.Run("each command names a record whose "+column+" cannot be read", func(t *testing.T) {
			t.Parallel()
			w, id := broken(t, column, value)
			for _, args := range [][]string{{"show", w.url, id}, {"why", w.url, id}, {"why", w.url, "bad"}} {
				require.Contains(t, ok(t, args...), "column "+column, args)
			}
			for _, args := range [][]string{{"list", w.url, "--status", "dead"}, {"dead", w.url}} {
				require.Contains(t, ok(t, args...), id, args)
			}
			report := diagnose(t, exitFailed, w.url)
			var kinds []string
			for _, p := range report.Problems {
				kinds = append(kinds, p.Kind)
			}
			require.Contains(t, kinds, "record_unreadable")
			require.Equal(t, "1 record would be requeued.\n", ok(t, "requeue", w.url, "--dry-run"))
			require.Equal(t, "1 record deleted.\n", ok(t, "delete", w.url, id))
			require.Equal(t, exitFailed, tool(t, "show", w.url, id).code)
		})
	}

	t.Run("an edit and a requeue have it delivered", func(t *testing.T) {
		t.Parallel()
		w, id := broken(t, "payload", "12")
		require.Equal(t, exitOK, toolWith(t, "mended", "edit", w.url, id, "--payload-file", "-", "--requeue").code)
		found := w.claimOne(t)
		require.Len(t, found, 1)
		require.Equal(t, "mended", string(found[0].Payload))
	})
}
