package driver_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// Where a round trip is one statement, its settings come into force behind it: the server would end the transaction while it receives the
// argument.
func TestAppend_LargeAsText(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 2, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = tap{}
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	})
	store := engine.New(driver.New(driver.PoolOf(db), driver.Config{Name: "text", Schema: "outmill"}), engine.Config{})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	sent := &trips{}
	ctx := context.WithValue(t.Context(), tapKey{}, sent)
	require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "orders", Payload: make([]byte, 2<<20)}))
	with := func(name string) int {
		return slices.IndexFunc(sent.list(), func(trip []any) bool {
			return slices.ContainsFunc(trip, func(value any) bool {
				text, isText := value.(string)
				return isText && strings.Contains(text, "/* outmill "+name+" */")
			})
		})
	}
	require.GreaterOrEqual(t, with("patience"), 0)
	require.Greater(t, with("log_insert"), with("patience"))
}
