package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

func TestStore_EnsureForeign(t *testing.T) {
	t.Parallel()
	db := pool(t)
	execute(t, db, `CREATE TABLE public.records (id bigint); CREATE VIEW public.notes AS SELECT 1 AS one`)
	err := newStore(t, db, postgres.Config{Schema: "public"}).Ensure(t.Context())
	require.ErrorIs(t, err, outmill.ErrSchemaForeign)
	require.ErrorContains(t, err, `the table "public"."notes", "public"."records" exists`)
	require.ErrorContains(t, err, "Config.Schema or Config.TablePrefix")
	require.Equal(t, 2, valueOf[int](t, db, `SELECT count(*)::int FROM pg_class WHERE relnamespace = 'public'::regnamespace`),
		"something was written")
	require.NoError(t, newStore(t, db, postgres.Config{Schema: "public", TablePrefix: "mill_"}).Ensure(t.Context()))
}
