package storekit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func TestFingerprintOf(t *testing.T) {
	t.Parallel()
	record := func(payload string, metadata ...string) *outmill.Record {
		r := &outmill.Record{Payload: []byte(payload), Metadata: map[string]string{}}
		for i := 0; i < len(metadata); i += 2 {
			r.Metadata[metadata[i]] = metadata[i+1]
		}
		return r
	}
	t.Run("records with the same payload and metadata have the same fingerprint", func(t *testing.T) {
		t.Parallel()
		one, other := record("p", "a", "1", "b", "2"), record("p", "b", "2", "a", "1")
		other.Attempts, other.LastError = 3, "boom"
		require.Equal(t, storekit.FingerprintOf(one), storekit.FingerprintOf(other))
	})
	t.Run("no metadata are empty metadata, and a nil payload is no empty one", func(t *testing.T) {
		t.Parallel()
		none, empty := &outmill.Record{}, &outmill.Record{Metadata: map[string]string{}}
		require.Equal(t, storekit.FingerprintOf(none), storekit.FingerprintOf(empty))
		require.Equal(t, len(storekit.FingerprintOf(record(""))), len(storekit.FingerprintOf(none)))
		require.NotEqual(t, storekit.FingerprintOf(record("")), storekit.FingerprintOf(none))
	})
	t.Run("records that differ in the payload or the metadata have different fingerprints", func(t *testing.T) {
		t.Parallel()
		seen := map[string]int{}
		for i, r := range []*outmill.Record{
			record(""), record("p"), record("", "p", ""), record("", "", "p"), record("", "a", "b", "c", "d"), record("", "a", "b1 1 cd"),
			record("", "a", "b", "c", ""), record("p", "a", "b", "c", "d"),
		} {
			fingerprint := storekit.FingerprintOf(r)
			require.NotContains(t, seen, fingerprint, "record %d", i)
			seen[fingerprint] = i
		}
	})
}

func TestWithActor(t *testing.T) {
	t.Parallel()
	t.Run("a context without an actor has none", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, storekit.ActorOf(t.Context()))
	})
	t.Run("a name that engines cannot store is made storable", func(t *testing.T) {
		t.Parallel()
		for name, want := range map[string]string{
			"ann": "ann", "a\x00b": "a\uFFFDb", "a\xffb": "ab", strings.Repeat("é", 300): strings.Repeat("é", 255),
			strings.Repeat("😀", 300): strings.Repeat("😀", 127),
		} {
			require.Equal(t, want, storekit.ActorOf(storekit.WithActor(t.Context(), name)))
		}
	})
}

func TestAuditEntry_Details(t *testing.T) {
	t.Parallel()
	t.Run("SetDetails reads what Details wrote", func(t *testing.T) {
		t.Parallel()
		entry := storekit.NewAuditEntry(t.Context(), roles.AuditEdit, outmill.NewWorkItemID())
		entry.Before.Fingerprint, entry.Before.Size, entry.Metadata = "abc", 3, []string{"a\"b"}
		entry.Filter = map[string]string{"topic": "orders"}
		var read roles.AuditEntry
		require.NoError(t, read.SetDetails(entry.Details()))
		require.Equal(t, entry.AuditDetails, read.AuditDetails)
	})
	t.Run("the lists of an entry have 100 ids at most", func(t *testing.T) {
		t.Parallel()
		require.Len(t, storekit.NewAuditEntry(t.Context(), roles.AuditDelete, make([]outmill.WorkItemID, 1000)...).IDs, 100)
	})
}
