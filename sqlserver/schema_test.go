package sqlserver_test

import (
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
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
		tx, err := store.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		require.ErrorIs(t, store.Append(store.WithTx(t.Context(), tx), one("never")), outmill.ErrSchemaMissing)
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

	t.Run("a program notices a newer schema at its next call", func(t *testing.T) {
		t.Parallel()
		store, table := ensured(t, sqlserver.Config{})
		require.NoError(t, store.Append(t.Context(), one("older")))
		execute(t, store.DB(), "UPDATE "+table+"Meta SET version = 2")
		require.NoError(t, store.Append(t.Context(), one("older still")), "until a version says that it must not")
		execute(t, store.DB(), "UPDATE "+table+"Meta SET compatible = 2")
		require.ErrorIs(t, store.Append(t.Context(), one("never")), outmill.ErrSchemaNewer)
		require.ErrorIs(t, store.Ensure(t.Context()), outmill.ErrSchemaNewer)
	})

	t.Run("the tables of another program, and those of before, are refused", func(t *testing.T) {
		t.Parallel()
		db := sharedPool(t)
		for _, made := range []string{
			"CREATE TABLE {} (Id INT)", "CREATE TABLE {}Meta (OnlyRow INT, Version INT, Compatible INT, Generation BIGINT)",
		} {
			table := unique("T")
			execute(t, db, strings.ReplaceAll(made, "{}", table))
			store := newStore(t, db, sqlserver.Config{Table: table})
			require.ErrorIs(t, store.Ensure(t.Context()), outmill.ErrSchemaForeign)
			require.ErrorContains(t, store.Ensure(t.Context()), "Config.Table")
			require.Error(t, store.Append(t.Context(), one("never")))
		}
	})

	t.Run("a database without READ_COMMITTED_SNAPSHOT is refused until it has it", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		store := newStore(t, db, sqlserver.Config{})
		execute(t, db, "ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT OFF WITH ROLLBACK IMMEDIATE")
		require.ErrorIs(t, store.Ensure(t.Context()), outmill.ErrInvalidConfig)
		_, err := db.ExecContext(t.Context(), store.Statements()[3])
		require.ErrorContains(t, err, "READ_COMMITTED_SNAPSHOT ON", "the printed schema says it, too")
		execute(t, db, "ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE")
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.Append(t.Context(), one("one")))
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
