package mysql_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/mysql"
)

const group = "readers"

// newStore returns a store on a database of its own, with its schema and a group that reads all topics.
func newStore(t *testing.T, parameters string) *mysql.Store {
	t.Helper()
	store, err := mysql.Open(t.Context(), mysqltest.Database(t)+"?"+parameters, mysql.Config{EnsureSchema: true}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	return store
}

func rec(name, key string) *outmill.Record {
	return &outmill.Record{Topic: "orders", MessageID: name, Key: key, Payload: []byte(name)}
}

// claimed returns the message ids of what one claim of the group finds.
func claimed(t *testing.T, store *mysql.Store, owner outmill.OwnerToken, order outmill.Order) (names []string) {
	t.Helper()
	found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: owner, Group: group, Limit: 100, Lease: time.Minute, Order: order})
	require.NoError(t, err)
	for _, r := range found {
		names = append(names, r.MessageID)
	}
	return names
}
