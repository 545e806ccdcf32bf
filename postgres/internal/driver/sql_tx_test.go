package driver_test

import (
	"context"
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql
	_ "github.com/lib/pq"              // the driver "postgres" of database/sql
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
)

// A caller's transaction may be one of database/sql, over pgx or another driver: its statements go one by one, and lists are texts.
func TestConformance_DatabaseSQL(t *testing.T) {
	t.Parallel()
	for name, driver := range map[string]string{"pgx": "pgx", "another driver": "postgres"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.Database(t)
			base := recordsOn(t, connect(t, url, 8, nil))
			db, err := sql.Open(driver, url)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			appendIn(t, base.New(t, storetest.Options{}).(harness), db)
		})
	}
}

func appendIn(t *testing.T, h harness, db *sql.DB) {
	t.Helper()
	group := outmill.Registration{Group: "g", Topics: outmill.Topics{Include: []string{"orders"}}}
	require.NoError(t, h.store.RegisterGroup(t.Context(), group))
	text := func(tx *sql.Tx, setting string) (value string) {
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT current_setting('"+setting+"')").Scan(&value))
		return value
	}
	in := func(commit bool, records ...*outmill.Record) error {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		path, scans := text(tx, "search_path"), text(tx, "enable_seqscan")
		err = h.store.Append(h.store.WithTx(context.WithoutCancel(t.Context()), tx), records...)
		require.Equal(t, []string{path, scans}, []string{text(tx, "search_path"), text(tx, "enable_seqscan")}, "the caller's settings changed")
		if !commit {
			return err
		}
		require.NoError(t, tx.Commit())
		return err
	}
	empty := &outmill.Record{Topic: "orders", Key: `a"\\{},'`, Payload: []byte{}, Metadata: map[string]string{`k"`: "\\"}}
	none := &outmill.Record{Topic: "orders", Key: "NULL", DedupKey: "once"}
	bytes := &outmill.Record{Topic: "orders", Payload: []byte{0, 1, 0xff, '\\', '"'}}
	require.NoError(t, in(true, empty, none, bytes))
	require.NoError(t, in(true, &outmill.Record{Topic: "orders", DedupKey: "once"}), "the second of a dedup key is left out")
	require.NoError(t, in(false, &outmill.Record{Topic: "orders", MessageID: "rolled back"}))
	require.ErrorContains(t, in(true, &outmill.Record{ID: bytes.ID, Topic: "orders"}), "exists", "an error leaves the transaction usable")

	got, err := h.store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "g", Limit: 10, Lease: 1e9})
	require.NoError(t, err)
	require.Len(t, got, 3)
	for i, want := range []*outmill.Record{empty, none, bytes} {
		require.Equal(t, want.Key, got[i].Key)
		require.Equal(t, want.Payload, got[i].Payload)
		require.Equal(t, want.Metadata, got[i].Metadata)
	}
}
