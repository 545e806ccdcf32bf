package main

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

func TestOutage(t *testing.T) {
	t.Parallel()

	t.Run("a crash of the database loses nothing and doubles nothing", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Own(t)
		w := newWorldAt(t, postgrestest.DatabaseOn(t, server.URL))
		w.createLog(t, "orders", "")
		want := ids("a", 600)
		w.in(t, func(tx *sql.Tx) bool {
			for _, id := range want {
				publishOld(t, tx, oldSchema, "orders", msg(id))
			}
			return true
		})
		tl := start(t, w.sourceArgs("-topic", "orders", "-batch", "20", "-once"))
		moved := func() int {
			// While the server is down, this is unknown.
			all, err := texts(context.WithoutCancel(t.Context()), w.db, `SELECT message_id FROM `+inOutbox)
			if err != nil {
				return 0
			}
			return len(all)
		}
		for range 2 {
			before := moved()
			require.Eventually(t, func() bool { return moved() > before || len(tl.ended) > 0 }, patience, tick)
			require.NoError(t, server.Restart(t.Context(), postgresengine.Immediate))
		}
		require.NoError(t, <-tl.ended, tl.says)
		require.Equal(t, want, w.outbox(t, "orders"))
	})

	t.Run("a database that stays away ends the tool", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Own(t)
		w := newWorldAt(t, postgrestest.DatabaseOn(t, server.URL))
		w.createLog(t, "orders", "")
		tl := start(t, w.sourceArgs("-topic", "orders", "-patience", "1ms"))
		require.Eventually(t, func() bool { return strings.Contains(tl.says.String(), "orders: moved 0") }, patience, tick)
		require.NoError(t, server.Kill(t.Context()))
		require.ErrorContains(t, <-tl.ended, "topic orders")
		require.Contains(t, tl.says.String(), "left=unknown")
		require.NoError(t, server.Start(t.Context()))
	})
}
