package allstores_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/mysql"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/storekit"
)

// nowhere is the address of a port on which nobody listens.
const nowhere = "127.0.0.1:1"

func TestStoreAway(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, host string) (outmill.Store, error){
		"postgres": func(t *testing.T, host string) (outmill.Store, error) {
			pool, err := pgxpool.New(t.Context(), "postgres://me@"+host+"/shop?sslmode=disable")
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			return postgres.New(pool, postgres.Config{}, nil)
		},
		"mongo": func(t *testing.T, host string) (outmill.Store, error) {
			client, err := driver.Connect(options.Client().SetHosts([]string{host}).SetServerSelectionTimeout(300 * time.Millisecond))
			require.NoError(t, err)
			t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
			return mongo.New(client, mongo.Config{Database: "shop"}, nil)
		},
		"mysql": func(t *testing.T, host string) (outmill.Store, error) {
			db, err := sql.Open("mysql", "me:secret@tcp("+host+")/shop?timeout=1s")
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			return mysql.New(db, mysql.Config{}, nil)
		},
		"sqlserver": func(t *testing.T, host string) (outmill.Store, error) {
			db, err := sql.Open("sqlserver", "sqlserver://me:secret@"+host+"?database=shop&encrypt=disable&dial+timeout=1")
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			return sqlserver.New(db, sqlserver.Config{}, nil)
		},
	} {
		t.Run(name+": a store that cannot be reached is ErrStoreAway, and a call that was given up is not", func(t *testing.T) {
			t.Parallel()
			store, err := open(t, nowhere)
			require.NoError(t, err)
			t.Cleanup(func() { _ = store.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			notes, ok := outmill.As[roles.Inbox](store)
			require.True(t, ok)
			transactor, ok := outmill.As[roles.Transactor](store)
			require.True(t, ok)
			_, err = notes.HasNote(ctx, "c", "k")
			require.ErrorIs(t, err, storekit.ErrStoreAway)
			require.ErrorIs(t, transactor.Transact(ctx, func(ctx context.Context) error {
				_, err := notes.PutNote(ctx, roles.Note{Consumer: "c", Key: "k", Retention: time.Hour}, 0)
				return err
			}), storekit.ErrStoreAway)
			cancel()
			_, err = notes.HasNote(ctx, "c", "k")
			require.Error(t, err)
			require.NotErrorIs(t, err, storekit.ErrStoreAway)
		})
	}
}
