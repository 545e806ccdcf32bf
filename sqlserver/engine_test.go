package sqlserver_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
)

// Tests of locks and sessions, which only SQL Server's own engine can show. docs/sqlserver.md names the test of each open question.

// reading returns a store with its schema and a group.
func reading(t *testing.T, config sqlserver.Config) (store *sqlserver.Store, table string) {
	t.Helper()
	store, table = ensured(t, config)
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return store, table
}

// holding runs the statement in a transaction that stays open, with its locks, until the test
// ends.
func holding(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	found, err := tx.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
	n, err := found.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, statement)
}

// patient bounds a call that must not wait for a lock, and might otherwise wait for ever.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func keyed(key, name string) *outmill.Record {
	return &outmill.Record{Topic: "orders", Key: key, MessageID: name, Payload: []byte("payload")}
}

func TestStore_Engine(t *testing.T) {
	t.Parallel()

	t.Run("settling a record does not wait for the note that another transaction has locked", func(t *testing.T) {
		t.Parallel()
		for name, settle := range map[string]func(context.Context, *sqlserver.Store, outmill.Lease) error{
			"ack": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Ack(ctx, "", []outmill.Lease{l})
			},
			"release": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Release(ctx, []outmill.Lease{l})
			},
			"abandon": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Abandon(ctx, []outmill.Settlement{{Lease: l}})
			},
			"fail": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Fail(ctx, []outmill.Settlement{{Lease: l}})
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store, table := reading(t, sqlserver.Config{})
				require.NoError(t, store.Append(t.Context(), keyed("k", "first"), keyed("k", "second")))
				found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
				require.Len(t, found, 1)
				// Another claim holds the second record and makes the note.
				require.Empty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)))
				holding(t, store.DB(), "UPDATE "+table+"Note SET looks = looks + 1")
				require.NoError(t, settle(patient(t), store, found[0].Lease()))
			})
		}
	})

	t.Run("a claim passes over a record that another transaction has locked", func(t *testing.T) {
		t.Parallel()
		store, table := reading(t, sqlserver.Config{})
		require.NoError(t, store.Append(t.Context(), one("first"), one("second")))
		// This column is in no index, so the index row stays unlocked.
		holding(t, store.DB(), "UPDATE "+table+" SET last_error = N'locked' WHERE message_id = N'first'")
		found, err := store.Claim(patient(t), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "second", found[0].MessageID)
	})

	t.Run("a claim after Resume passes over a held record that another transaction has locked", func(t *testing.T) {
		t.Parallel()
		store, table := reading(t, sqlserver.Config{})
		first, second := one("first"), one("second")
		first.TenantID, second.TenantID = "acme", "acme"
		require.NoError(t, store.Append(t.Context(), first, second))
		scope := roles.PauseScope{TenantID: "acme"}
		require.NoError(t, store.Pause(t.Context(), scope, "ann", ""))
		request := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)
		require.Empty(t, claimed(t, store, request))
		require.Equal(t, 2, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table+" WHERE stage = 1"))
		holding(t, store.DB(), "UPDATE "+table+" SET last_error = N'locked' WHERE message_id = N'first'")
		ended, err := store.Resume(patient(t), scope)
		require.NoError(t, err)
		require.True(t, ended)
		found, err := store.Claim(patient(t), request)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "second", found[0].MessageID)
	})

	t.Run("the janitor passes over a record that another transaction has locked", func(t *testing.T) {
		t.Parallel()
		store, table := reading(t, sqlserver.Config{Retain: time.Hour})
		require.NoError(t, store.Append(t.Context(), one("first"), one("second")))
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(claimed(t, store, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone)))))
		passTime(t, store.DB(), table, 2*time.Hour)
		holding(t, store.DB(), "UPDATE "+table+" SET last_error = N'locked' WHERE message_id = N'first'")
		deleted, err := store.DeleteProcessed(patient(t), 10)
		require.NoError(t, err)
		require.Equal(t, 1, deleted)
	})

	t.Run("a claim in order waits for no record of a transaction that is open", func(t *testing.T) {
		t.Parallel()
		store, _ := reading(t, sqlserver.Config{})
		require.NoError(t, store.Append(t.Context(), keyed("k", "first")))
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, store.Append(ctx, keyed("k", "not committed"), keyed("other", "not committed")))
			found, err := store.Claim(patient(t), claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey))
			require.NoError(t, err)
			require.Len(t, found, 1)
			return nil
		}))
	})

	t.Run("a dedup key waits for the transaction that has it, and then is free or taken", func(t *testing.T) {
		t.Parallel()
		store, _ := reading(t, sqlserver.Config{})
		for _, commit := range []bool{false, true} {
			key := unique("key")
			first, second, other := one("first"), one("second"), one("other")
			first.DedupKey, second.DedupKey, other.DedupKey = key, key, key+" other"
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, store.Append(store.WithTx(t.Context(), tx), first))
			require.NoError(t, store.Append(patient(t), other), "another key does not wait")
			done := make(chan error, 1)
			go func() { done <- store.Append(t.Context(), second) }()
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			require.NoError(t, end())
			require.NoError(t, <-done)
			require.Equal(t, commit, second.Duplicate)
		}
	})
}
