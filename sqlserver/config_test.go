package sqlserver_test

import (
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlserver"
)

// nowhere is a pool that never connects.
func nowhere(t *testing.T) *sql.DB {
	t.Helper()
	return connect(t, "sqlserver://user:secret@127.0.0.1:1?encrypt=disable")
}

func TestStore_Config(t *testing.T) {
	t.Parallel()

	t.Run("each invalid setting is refused by its name", func(t *testing.T) {
		t.Parallel()
		db := nowhere(t)
		for want, config := range map[string]sqlserver.Config{
			`Config.Schema is "a.b"`:          {Schema: "a.b"},
			`Config.Schema is "a]b"`:          {Schema: "a]b"},
			`Config.Schema is "1a"`:           {Schema: "1a"},
			`Config.Schema is "sss`:           {Schema: strings.Repeat("s", 101)},
			`Config.Table is "a b"`:           {Table: "a b"},
			`Config.Table is "a'; DROP`:       {Table: "a'; DROP TABLE x; --"},
			`Config.Table is "a\nb"`:          {Table: "a\nb"},
			`Config.Table is "[Outbox]"`:      {Table: "[Outbox]"},
			`Config.Table is "ttt`:            {Table: strings.Repeat("t", 101)},
			"Config.AppendLogLevel is WARN":   {AppendLogLevel: slog.LevelWarn},
			"Config.Retain is -1ns":           {Retain: -1},
			"Config.RetainJoins is -1s":       {RetainJoins: -time.Second},
			"Config.RetainAudit is -1s":       {RetainAudit: -time.Second},
			"Config.DedupWindow is -1m0s":     {DedupWindow: -time.Minute},
			"Config.FairTopics":               {FairTopics: []string{""}},
			"Config.MaxPayload is -1":         {MaxPayload: -1},
			"Config.MaxPayload is 2146435073": {MaxPayload: sqlserver.MostMaxPayload + 1},
		} {
			err := config.Validate()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, want)
			require.ErrorContains(t, err, want)
			_, err = sqlserver.New(db, config, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, want)
			_, err = sqlserver.Open(t.Context(), "sqlserver://127.0.0.1:1", config, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, want)
		}
		require.NoError(t, sqlserver.Config{}.Validate())
		require.NoError(t, sqlserver.Config{Schema: "größe", Table: "_" + strings.Repeat("t", 99),
			MaxPayload: sqlserver.MostMaxPayload}.Validate())
	})

	t.Run("all invalid settings are reported at once", func(t *testing.T) {
		t.Parallel()
		err := sqlserver.Config{Table: "$", Retain: -1, MaxPayload: -1}.Validate()
		for _, field := range []string{"Table", "Retain", "MaxPayload"} {
			require.ErrorContains(t, err, field)
		}
		require.NotContains(t, err.Error(), "DedupWindow")
	})

	t.Run("a store without a pool is refused", func(t *testing.T) {
		t.Parallel()
		_, err := sqlserver.New(nil, sqlserver.Config{}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "db is nil")
	})

	t.Run("the statements have only the configured names", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, nowhere(t), sqlserver.Config{Schema: "shop", Table: "Größe1"})
		text := strings.Join(append(store.Statements(), store.Grants("app")...), "\n")
		for _, want := range []string{
			"CREATE SCHEMA [shop]", "CREATE TABLE [shop].[Größe1] (", "CONSTRAINT [Größe1_pk_records]",
			"CREATE UNIQUE INDEX [Größe1_ids] ON [shop].[Größe1] (id)", "CREATE TABLE [shop].[Größe1Entry] (",
			"CREATE TYPE [shop].[Größe1New] AS TABLE", "CREATE PROCEDURE [shop].[Größe1_Claim] ", "CREATE FUNCTION [shop].[Größe1_Now]()",
			"GRANT EXECUTE ON TYPE::[shop].[Größe1New] TO [app]",
		} {
			require.Contains(t, text, want)
		}
		require.NotContains(t, text, "[dbo]")
		require.NotRegexp(t, `\[(\w+_)?Outbox`, text)
	})

	t.Run("stores of other tables and schemas do not touch each other", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		var stores []*sqlserver.Store
		for _, config := range []sqlserver.Config{{}, {Table: "OutboxJoin2"}, {Schema: "shop"}, {Schema: "shop", Table: "Orders_x"}} {
			store := newStore(t, db, config)
			require.ErrorIs(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}), outmill.ErrSchemaMissing)
			require.NoError(t, store.Ensure(t.Context()))
			stores = append(stores, store)
		}
		for i, store := range stores {
			topic := strings.Repeat("t", i+1)
			require.NoError(t, store.RegisterGroup(t.Context(),
				outmill.Registration{Group: readers, Topics: outmill.Topics{Include: []string{topic}}}))
			record := &outmill.Record{Topic: topic, MessageID: topic, Key: "same", DedupKey: "same"}
			require.NoError(t, store.Append(t.Context(), record))
			require.False(t, record.Duplicate)
		}
		for i, store := range stores {
			groups, err := store.Groups(t.Context())
			require.NoError(t, err)
			require.Len(t, groups, 1)
			found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey))
			require.Len(t, found, 1)
			require.Equal(t, strings.Repeat("t", i+1), found[0].Topic)
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
			require.Empty(t, listed(t, store))
		}
	})
}
