package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

// sent counts the statements of batches.
type sent struct{ statements atomic.Int32 }

func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.statements.Add(1)
	return ctx
}

func (*sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*sent) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *sent) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	s.statements.Add(1)
}

func (*sent) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func TestStore_IdleLooks(t *testing.T) {
	t.Parallel()
	for name, topics := range map[string]outmill.Topics{
		"of a topic": {Include: []string{outmill.Exact("orders")}}, "of all topics": {},
	} {
		t.Run("a claim that finds nothing is one statement: "+name, func(t *testing.T) {
			t.Parallel()
			var count sent
			db := connectAs(t, postgrestest.Database(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = &count })
			store, err := postgres.New(db, postgres.Config{EnsureSchema: true, NotifyInterval: -1}, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Topics: topics}))
			request := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)
			request.Group, request.Topics = outmill.DefaultGroup, topics
			claims := func() int32 {
				before := count.statements.Load()
				found, err := store.Claim(t.Context(), request)
				require.NoError(t, err)
				require.Empty(t, found)
				return count.statements.Load() - before
			}
			// The first claims search the log, after which it is at rest for some seconds.
			require.Eventually(t, func() bool { return claims() == 1 }, patience, time.Millisecond)
			require.NoError(t, store.Append(t.Context(), made("orders", "m", 1)...))
			found, err := store.Claim(t.Context(), request)
			require.NoError(t, err)
			require.Len(t, found, 1)
		})
	}
}
