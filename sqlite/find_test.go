package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestStore_FindByContract(t *testing.T) {
	t.Parallel()

	t.Run("goes on past records that cannot be decoded, and deletes them by their contract", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		records := []*outmill.Record{rec("", ""), rec("", ""), rec("", "")}
		for i, name := range []string{"good", "broken", "illegible"} {
			records[i].MessageID, records[i].Metadata = name, map[string]string{outmill.MetadataContract: "placed"}
		}
		require.NoError(t, store.Append(t.Context(), records...))
		db, err := sql.Open("sqlite", store.path)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		for name, set := range map[string]string{"broken": "joins = 'x'", "illegible": "metadata = '{'"} {
			_, err = db.ExecContext(t.Context(), "UPDATE outmill_records SET "+set+" WHERE message_id = ?", name)
			require.NoError(t, err)
		}
		page, err := store.DeleteWhere(t.Context(), outmill.ListQuery{Contract: "placed"})
		require.NoError(t, err)
		require.Equal(t, 2, page.Changed)
		require.True(t, page.Done)
		page, err = store.Find(t.Context(), outmill.ListQuery{Contract: "placed"})
		require.NoError(t, err)
		require.Empty(t, page.Records)
	})
}
