package tenants_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/tenants"
)

func TestSet_Examine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(ctx context.Context, tenant tenants.Tenant) (outmill.Store, error) {
		if tenant.Key == "away" {
			return nil, errors.New("connection refused")
		}
		return sqlite.Open(ctx, filepath.Join(dir, tenant.Key+".db"), sqlite.Config{EnsureSchema: tenant.Key != "empty"}, nil)
	}
	set, err := tenants.New(t.Context(), tenants.Config{
		Discovery: tenants.Static{
			{Key: "away", URL: "away"}, {Key: "broken", URL: "broken"}, {Key: "empty", URL: "empty"}, {Key: "fine", URL: "fine"},
		}, Open: open, Refresh: -1,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	store, err := set.Outbox("broken")
	require.NoError(t, err)
	broken, ok := outmill.As[*sqlite.Store](store)
	require.True(t, ok)
	_, err = broken.DB().ExecContext(t.Context(), "DROP INDEX outmill_entries_at")
	require.NoError(t, err)

	t.Run("each member's findings have its name, and one that is away is a finding", func(t *testing.T) {
		t.Parallel()
		found, err := set.Examine(t.Context(), roles.ExamineRequest{LockWait: time.Second})
		require.NoError(t, err)
		codes := map[string]string{}
		for _, f := range found.Findings {
			codes[f.Store] = f.Code
		}
		require.Equal(t, map[string]string{"away": "store_unreachable", "broken": "index_missing", "empty": "schema_missing"}, codes)
		require.Len(t, found.Findings, 3)
	})

	t.Run("a context that names a tenant examines that one", func(t *testing.T) {
		t.Parallel()
		found, err := set.Examine(tenants.WithTenant(t.Context(), "broken"), roles.ExamineRequest{})
		require.NoError(t, err)
		require.Len(t, found.Findings, 1)
		require.Equal(t, "broken", found.Findings[0].Store)
	})

	t.Run("a closed set says so", func(t *testing.T) {
		t.Parallel()
		away := tenants.Static{{Key: "away", URL: "away"}}
		closed, err := tenants.New(t.Context(), tenants.Config{Discovery: away, Open: open, Refresh: -1}, nil)
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		_, err = closed.Examine(t.Context(), roles.ExamineRequest{})
		require.ErrorIs(t, err, outmill.ErrClosed)
	})
}
