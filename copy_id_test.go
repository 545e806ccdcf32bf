package outmill_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestCopyID(t *testing.T) {
	t.Parallel()
	first := outmill.NewWorkItemID()

	t.Run("an id leads from a message to its copy and back", func(t *testing.T) {
		t.Parallel()
		billing := outmill.CopyID(first, "billing")
		require.NotEqual(t, first, billing)
		require.Equal(t, first, outmill.CopyID(billing, "billing"))
	})

	t.Run("each group has another id, and always the same", func(t *testing.T) {
		t.Parallel()
		require.NotEqual(t, outmill.CopyID(first, "billing"), outmill.CopyID(first, "mail"))
		require.Equal(t, outmill.CopyID(first, "mail"), outmill.CopyID(first, "mail"))
	})

	t.Run("a copy keeps the time, the version and the variant of the id", func(t *testing.T) {
		t.Parallel()
		of := uuid.UUID(outmill.CopyID(first, "billing"))
		require.Equal(t, first[:8], of[:8])
		require.Equal(t, uuid.Version(7), of.Version())
		require.Equal(t, uuid.RFC4122, of.Variant())
	})

	t.Run("the hash is the one that a database computes", func(t *testing.T) {
		t.Parallel()
		id, err := outmill.ParseWorkItemID("019302b8-5a00-7000-8000-000000000000")
		require.NoError(t, err)
		// printf billing | sha256sum
		want, err := outmill.ParseWorkItemID("019302b8-5a00-7000-8c95-c7ece1ce1a97")
		require.NoError(t, err)
		require.Equal(t, want, outmill.CopyID(id, "billing"))
	})
}
