package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

const group = "readers"

// newStore returns a store on its own file, with its schema and a group that reads all topics.
func newStore(t *testing.T, configs ...sqlite.Config) file {
	t.Helper()
	var config sqlite.Config
	if len(configs) > 0 {
		config = configs[0]
	}
	path := filepath.Join(t.TempDir(), "outbox.db")
	require.NoError(t, os.WriteFile(path, template(), 0o600))
	store := openFile(t, path, config)
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	return store
}

func rec(name, key string) *outmill.Record {
	return &outmill.Record{Topic: "orders", MessageID: name, Key: key, Payload: []byte(name)}
}

func appendAll(t *testing.T, store outmill.Store, records ...*outmill.Record) {
	t.Helper()
	require.NoError(t, store.Append(t.Context(), records...))
}

func claimRequest(owner outmill.OwnerToken, limit int, order outmill.Order) outmill.ClaimRequest {
	return outmill.ClaimRequest{Owner: owner, Group: group, Limit: limit, Lease: time.Minute, Order: order}
}

func claim(t *testing.T, store outmill.Store, req outmill.ClaimRequest) []*outmill.Record {
	t.Helper()
	found, err := store.Claim(t.Context(), req)
	require.NoError(t, err)
	return found
}

func names(records []*outmill.Record) []string {
	list := make([]string, len(records))
	for i, r := range records {
		list[i] = r.MessageID
	}
	return list
}

func leases(records []*outmill.Record) []outmill.Lease {
	list := make([]outmill.Lease, len(records))
	for i, r := range records {
		list[i] = r.Lease()
	}
	return list
}

// number reads the only value of a query.
func number(t require.TestingT, db *sql.DB, query string, args ...any) int {
	var n int
	require.NoError(t, db.QueryRow(query, args...).Scan(&n))
	return n
}
