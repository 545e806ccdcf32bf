//go:build unix

package postgres_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

// A frozen process is this test binary in another process, which is stopped in a transaction.
const (
	frozenVariable = "OUTMILL_POSTGRES_TEST_FROZEN"
	howVariable    = "OUTMILL_POSTGRES_TEST_FROZEN_HOW"
)

var frozenNote = roles.Note{Consumer: "billing", Key: "m1", Retention: time.Hour}

// init plays the frozen process, before the tests of this one would begin.
func init() {
	url := os.Getenv(frozenVariable)
	if url == "" {
		return
	}
	if err := freeze(url, os.Getenv(howVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "frozen:", err)
		os.Exit(2)
	}
	os.Exit(0)
}

func freeze(url, how string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	config := postgres.Config{IdleInTransaction: 500 * time.Millisecond}
	if how == "database/sql" {
		if config.DB, err = sql.Open("pgx", url); err != nil {
			return err
		}
	}
	store, err := postgres.New(pool, config, nil)
	if err != nil {
		return err
	}
	return store.Transact(ctx, func(ctx context.Context) error {
		if how == "the user begins" {
			if tx, ok := store.Tx(ctx); !ok || tx.Conn().IsClosed() {
				return sql.ErrTxDone
			}
		}
		if _, err := store.PutNote(ctx, frozenNote, 0); err != nil {
			return err
		}
		fmt.Println("noted")
		select {}
	})
}

func TestStore_Idle(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"the note begins", "the user begins", "database/sql"} {
		t.Run("a process that is stopped in a handler's transaction holds its message for a limited time: "+how, func(t *testing.T) {
			t.Parallel()
			database := postgrestest.Database(t)
			store, err := postgres.Open(t.Context(), database, postgres.Config{EnsureSchema: true}, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), frozenVariable+"="+database, howVariable+"="+how)
			child.Stderr = os.Stderr
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			defer func() {
				_ = child.Process.Kill()
				_ = child.Wait()
			}()
			lines := bufio.NewScanner(out)
			require.True(t, lines.Scan(), "the other process has no transaction")
			require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
			require.Eventually(t, func() bool {
				return store.Transact(t.Context(), func(ctx context.Context) error {
					_, err := store.PutNote(ctx, frozenNote, 10*time.Millisecond)
					return err
				}) == nil
			}, patience, 20*time.Millisecond)
		})
	}
	t.Run("the limit is that of the setting, else of the context, and the user's own value stays", func(t *testing.T) {
		t.Parallel()
		database := postgrestest.Database(t)
		limit := func(ctx context.Context, parameters string, config postgres.Config) (within, after string) {
			t.Helper()
			config.EnsureSchema = true
			store, err := postgres.Open(t.Context(), database+"&pool_max_conns=1"+parameters, config, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			const show = `SHOW idle_in_transaction_session_timeout`
			require.NoError(t, store.Transact(ctx, func(ctx context.Context) error {
				tx, _ := store.Tx(ctx)
				return tx.QueryRow(ctx, show).Scan(&within)
			}))
			return within, valueOf[string](t, store.Pool(), show)
		}
		within, after := limit(t.Context(), "", postgres.Config{})
		require.Equal(t, []string{"15min", "0"}, []string{within, after})
		within, _ = limit(t.Context(), "", postgres.Config{IdleInTransaction: 20 * time.Second})
		require.Equal(t, "20s", within)
		within, _ = limit(t.Context(), "", postgres.Config{IdleInTransaction: -1})
		require.Equal(t, "0", within)
		within, after = limit(t.Context(), "&idle_in_transaction_session_timeout=7s", postgres.Config{})
		require.Equal(t, []string{"7s", "7s"}, []string{within, after})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		within, _ = limit(ctx, "", postgres.Config{})
		d, err := time.ParseDuration(within)
		require.NoError(t, err, within)
		require.InDelta(t, time.Hour, d, float64(time.Minute))
	})
}
