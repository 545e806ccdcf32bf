package sqlserver_test

import (
	"database/sql"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/sqlserver"
)

func TestStore_Schema(t *testing.T) {
	t.Parallel()

	t.Run("the error of a missing schema names the remedy", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, sharedPool(t), sqlserver.Config{Table: unique("T")})
		for name, call := range map[string]func() error{
			"append":   func() error { return store.Append(t.Context(), one("never")) },
			"register": func() error { return store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}) },
			"claim": func() error {
				_, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
				return err
			},
			"stats": func() error { _, err := store.Stats(t.Context(), 0); return err },
			"tx":    func() error { return store.InTx(t.Context(), nothing) },
		} {
			err := call()
			require.ErrorIs(t, err, outmill.ErrSchemaMissing, name)
			require.ErrorContains(t, err, "store.Ensure", name)
		}
		// In a caller's transaction, the store does not check the schema first.
		tx, err := store.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		err = store.Append(store.WithTx(t.Context(), tx), one("never"))
		require.Error(t, err)
		if !sqlservertest.IsBabelfish(t, store.DB()) { // which has numbers of its own
			require.ErrorIs(t, err, outmill.ErrSchemaMissing)
		}
	})

	t.Run("ten stores ensure at once and again", func(t *testing.T) {
		t.Parallel()
		table := unique("T")
		db := sharedPool(t)
		var wait sync.WaitGroup
		for range 10 {
			store := newStore(t, db, sqlserver.Config{Table: table})
			wait.Go(func() {
				for range 2 {
					if err := store.Ensure(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		store := newStore(t, db, sqlserver.Config{Table: table})
		require.NoError(t, store.Append(t.Context(), one("one")))
		require.NoError(t, store.Ensure(t.Context()))
		require.Equal(t, []string{"one"}, listed(t, store))
	})

	t.Run("a migration is atomic", func(t *testing.T) {
		t.Parallel()
		table := unique("T") // not to be given to other tests
		store := newStore(t, sharedPool(t), sqlserver.Config{Table: table})
		require.NoError(t, store.Ensure(t.Context()))
		version := "SELECT Version FROM " + table + "Meta"
		const note = "ALTER TABLE [dbo].[Outbox] ADD Note NVARCHAR(10) NULL;\nGO\n"
		err := store.EnsureFrom(t.Context(), later(t, note+"INSERT [dbo].[OutboxNotThere] (A) VALUES (1);\nGO\n"))
		require.ErrorContains(t, err, "version 2")
		require.ErrorContains(t, err, "INSERT [dbo].["+table+"NotThere]", "it says where")
		require.Equal(t, 1, valueOf[int](t, store.DB(), version))
		require.Zero(t, valueOf[int](t, store.DB(),
			"SELECT COUNT(*) FROM sys.columns WHERE object_id = OBJECT_ID('"+table+"') AND name = 'Note'"))

		require.NoError(t, store.EnsureFrom(t.Context(), later(t, note)))
		require.Equal(t, 2, valueOf[int](t, store.DB(), version))
		// An older program can use the schema until a migration says that it must not.
		older := newStore(t, store.DB(), sqlserver.Config{Table: table})
		require.NoError(t, older.Ensure(t.Context()))
		require.NoError(t, older.Append(t.Context(), one("older")))
		execute(t, store.DB(), "UPDATE "+table+"Meta SET Compatible = 2")
		newer := newStore(t, store.DB(), sqlserver.Config{Table: table})
		require.ErrorIs(t, newer.Ensure(t.Context()), outmill.ErrSchemaNewer)
		require.ErrorIs(t, newer.Append(t.Context(), one("never")), outmill.ErrSchemaNewer)
		require.ErrorIs(t, older.Append(t.Context(), one("never")), outmill.ErrSchemaNewer,
			"a program that runs already notices at its next append")
		execute(t, store.DB(), "UPDATE "+table+"Meta SET Version = 0, Compatible = 0")
		outdated := newStore(t, store.DB(), sqlserver.Config{Table: table})
		require.ErrorIs(t, outdated.Append(t.Context(), one("never")), outmill.ErrSchemaMissing)
		require.Equal(t, []string{"older"}, listed(t, older))
	})

	t.Run("the statements one by one make the schema that ensure makes", func(t *testing.T) {
		t.Parallel()
		ensuredStore, made := ensured(t, sqlserver.Config{})
		table := unique("T")
		byHand := newStore(t, ensuredStore.DB(), sqlserver.Config{Table: table})
		for _, statement := range byHand.Statements() {
			execute(t, byHand.DB(), statement)
		}
		want := described(t, ensuredStore.DB(), made)
		require.Greater(t, len(want), 60)
		require.Equal(t, want, described(t, byHand.DB(), table))
		require.NoError(t, byHand.Ensure(t.Context()))
		everything(t, byHand)
	})
}

// later returns the migrations of a later program.
func later(t *testing.T, text string) fs.FS {
	t.Helper()
	files := fstest.MapFS{"schema/0002/10_later.sql": &fstest.MapFile{Data: []byte(text)}}
	names, err := fs.Glob(sqlserver.SchemaFiles, "schema/*/*.sql")
	require.NoError(t, err)
	for _, name := range names {
		data, err := fs.ReadFile(sqlserver.SchemaFiles, name)
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: data}
	}
	return files
}

// described lists the objects of a store, without the name of its table.
func described(t *testing.T, db *sql.DB, table string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
SELECT o.type + ' ' + o.name + '.' + c.name + ' ' + CAST(c.max_length AS VARCHAR(10)) + ' ' + CAST(c.is_nullable AS VARCHAR(1))
    FROM sys.objects AS o JOIN sys.columns AS c ON c.object_id = o.object_id WHERE CHARINDEX(LOWER(@table), LOWER(o.name)) = 1
UNION ALL SELECT 'procedure ' + name FROM sys.procedures WHERE CHARINDEX(LOWER(@table), LOWER(name)) = 1
UNION ALL SELECT 'type ' + name FROM sys.table_types WHERE CHARINDEX(LOWER(@table), LOWER(name)) = 1`, sql.Named("table", table))
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var found []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		found = append(found, strings.ReplaceAll(strings.ToLower(line), strings.ToLower(table), "…"))
	}
	require.NoError(t, rows.Err())
	slices.Sort(found)
	return found
}
