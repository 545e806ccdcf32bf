package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

func TestConfig_SchemaThatEndsAFunction(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"$outmill$", "x$outmill$;DROP SCHEMA public;--"} {
		err := postgres.Config{Schema: schema}.Validate()
		require.ErrorIs(t, err, outmill.ErrInvalidConfig, schema)
		require.ErrorContains(t, err, "Schema")
		_, err = postgres.Open(t.Context(), "postgres://127.0.0.1:1/db", postgres.Config{Schema: schema}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig, schema)
	}
	require.NoError(t, postgres.Config{Schema: `o'ut"mill $1 */`}.Validate())
}
