package driver_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo/internal/driver"
)

// mute loses the answers of the next inserts: the server has carried them out.
type mute struct{ left atomic.Int64 }

func (m *mute) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &muted{Conn: conn, of: m}, err
}

type muted struct {
	net.Conn
	of    *mute
	loses atomic.Bool
}

func (c *muted) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("\x02insert\x00")) && c.of.left.Add(-1) >= 0 {
		c.loses.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *muted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.loses.Load() && err == nil {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// The client repeats a write once, by itself.
func TestInsert_WhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	const answersOfOneWrite = 2
	db := mongotest.Database(t)
	m := &mute{}
	client := dial(t, options.Client().ApplyURI(mongotest.Server(t)).SetDialer(m))
	config := driver.Config{Name: "muted", Database: db.Name(), WithoutChangeStream: true}
	store := engine.New(driver.New(client, config), engine.Config{Name: "muted"})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	stored := func() (n int64) {
		n, err := db.Collection("records").CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		return n
	}
	first := &outmill.Record{Topic: "orders", MessageID: "first"}
	require.NoError(t, store.Append(t.Context(), first))
	for _, lost := range []int64{answersOfOneWrite, 2 * answersOfOneWrite} {
		m.left.Store(lost)
		was := stored()
		r := &outmill.Record{Topic: "orders"}
		require.NoError(t, store.Append(t.Context(), r), "the record is stored")
		require.LessOrEqual(t, m.left.Load(), int64(0), "the answers were lost")
		require.Equal(t, was+1, stored())
		got, err := store.Get(t.Context(), r.ID)
		require.NoError(t, err)
		require.Equal(t, r.CreatedAt, got.CreatedAt)
	}
	m.left.Store(answersOfOneWrite)
	other := &outmill.Record{ID: first.ID, Topic: "orders", MessageID: "other"}
	require.ErrorContains(t, store.Append(t.Context(), other), "exists", "the id is that of another record")
	got, err := store.Get(t.Context(), first.ID)
	require.NoError(t, err)
	require.Equal(t, "first", got.MessageID)
}
