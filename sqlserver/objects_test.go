package sqlserver_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/sqlserver"
)

func TestStore_Objects(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(sqlserver.SchemaFiles, "schema/*/*.sql")
	require.NoError(t, err)
	var schema strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(sqlserver.SchemaFiles, name)
		require.NoError(t, err)
		schema.Write(text)
	}

	t.Run("the schema has the tables that the functional specification names (OBX-111)", func(t *testing.T) {
		t.Parallel()
		for _, table := range []string{"Outbox", "OutboxJoin", "OutboxJoinMember"} {
			require.Contains(t, schema.String(), "CREATE TABLE [dbo].["+table+"] (")
		}
	})

	t.Run("the schema has a procedure for claim, ack, abandon, fail and reap (OBX-112)", func(t *testing.T) {
		t.Parallel()
		for _, procedure := range []string{"Outbox_Claim", "Outbox_Ack", "Outbox_Abandon", "Outbox_Fail", "Outbox_Reap"} {
			require.Contains(t, schema.String(), "CREATE PROCEDURE [dbo].["+procedure+"]\n")
		}
	})
}
