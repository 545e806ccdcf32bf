package allstores

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	_ "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	outmillmongo "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/sqlserver"
)

const (
	patience = 5 * time.Minute
	topic    = "orders"
)

func record(topic, name, correlation string) *outmill.Record {
	return &outmill.Record{Topic: topic, MessageID: name, CorrelationID: correlation, Payload: []byte("secret"),
		Metadata: map[string]string{"card": "secret"}}
}

// stand has a store, and a function that runs a transaction as a user would.
type stand struct {
	outmill.Store
	inTx func(ctx context.Context, fn func(ctx context.Context) error) error
}

// stands open a store with its schema, each in a database of its own.
var stands = map[string]func(t *testing.T, appends slog.Leveler, log watermill.LoggerAdapter) stand{
	"SQLite": func(t *testing.T, appends slog.Leveler, log watermill.LoggerAdapter) stand {
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{Name: "shop", AppendLogLevel: appends}, log)
		require.NoError(t, err)
		return stand{store, func(ctx context.Context, fn func(ctx context.Context) error) error {
			return store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx) })
		}}
	},
	"PostgreSQL": standOnPostgreSQL,
	"MongoDB": func(t *testing.T, appends slog.Leveler, log watermill.LoggerAdapter) stand {
		db := mongotest.Database(t)
		store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Name: "shop", Database: db.Name(), AppendLogLevel: appends}, log)
		require.NoError(t, err)
		return stand{store, store.InTx}
	},
	"SQL Server": func(t *testing.T, appends slog.Leveler, log watermill.LoggerAdapter) stand {
		db, err := sql.Open("sqlserver", sqlservertest.Database(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		store, err := sqlserver.New(db, sqlserver.Config{Name: "shop", AppendLogLevel: appends}, log)
		require.NoError(t, err)
		return stand{store, func(ctx context.Context, fn func(ctx context.Context) error) error {
			return store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx) })
		}}
	},
}

func standOnPostgreSQL(t *testing.T, appends slog.Leveler, log watermill.LoggerAdapter) stand {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Config{Name: "shop", AppendLogLevel: appends},
		log)
	require.NoError(t, err)
	return stand{store, func(ctx context.Context, fn func(ctx context.Context) error) error {
		return store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return fn(ctx) })
	}}
}

func eachStore(t *testing.T, appends slog.Leveler, test func(t *testing.T, s stand, log *journal.Journal)) {
	t.Helper()
	for name, open := range stands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := journal.New()
			s := open(t, appends, log)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			require.NoError(t, s.Ensure(t.Context()))
			require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
			log.Take()
			test(t, s, log)
		})
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()

	t.Run("each event of a store is logged once with the store's name (OBX-102, OBX-103, OBX-106)", func(t *testing.T) {
		t.Parallel()
		eachStore(t, nil, func(t *testing.T, s stand, log *journal.Journal) {
			ctx := t.Context()
			requireLine := func(level watermill.LogLevel, msg string, fields watermill.LogFields) {
				t.Helper()
				fields["store"] = "shop"
				require.Equal(t, []journal.Line{{Level: level, Msg: msg, Fields: fields}}, log.Take())
			}

			require.NoError(t, s.Append(ctx))
			require.Empty(t, log.Take(), "nothing was appended")
			require.Error(t, s.Append(ctx, record("", "m1", "c1")))
			require.Empty(t, log.Take(), "it was refused")
			require.NoError(t, s.Append(ctx, record("orders", "m1", "c1")))
			requireLine(watermill.DebugLogLevel, "Records appended",
				watermill.LogFields{"count": 1, "topic": "orders", "correlation_id": "c1", "message_uuid": "m1"})
			once := []*outmill.Record{record("orders", "m2", ""), record("mails", "m3", "c3"), record("mails", "m4", "c1")}
			once[1].DedupKey, once[2].DedupKey = "once", "once"
			require.NoError(t, s.inTx(ctx, func(ctx context.Context) error { return s.Append(ctx, once...) }))
			requireLine(watermill.DebugLogLevel, "Records appended",
				watermill.LogFields{"count": 2, "topic": "orders,mails", "correlation_id": "c3,c1", "duplicates": 1, "in_transaction": true})

			owner := outmill.NewOwnerToken()
			req := outmill.ClaimRequest{Owner: owner, Group: "readers", Limit: 10, Lease: 10 * time.Millisecond}
			found := 0
			for found < 3 {
				records, err := s.Claim(ctx, req)
				require.NoError(t, err)
				require.NotEmpty(t, records)
				requireLine(watermill.DebugLogLevel, "Records claimed",
					watermill.LogFields{"count": len(records), "group": "readers", "owner": owner.String()})
				found += len(records)
				req.Limit = 3 - found
			}
			reaped := 0
			require.Eventually(t, func() bool {
				n, err := s.ReapExpired(ctx, 10)
				require.NoError(t, err)
				if reaped += n; n > 0 {
					requireLine(watermill.InfoLogLevel, "Expired leases were reaped", watermill.LogFields{"count": n})
				}
				return reaped == 3
			}, patience, 5*time.Millisecond)
			req.Topics.Include = []string{"nothing"}
			req.Limit = 10
			records, err := s.Claim(ctx, req)
			require.NoError(t, err)
			require.Empty(t, records)
			n, err := s.ReapExpired(ctx, 10)
			require.NoError(t, err)
			require.Zero(t, n)
			require.Empty(t, log.Take(), "nothing was claimed or reaped")

			joins := s.Store.(roles.Joins)
			join := &roles.Join{Unsealed: true}
			require.NoError(t, joins.StartJoin(ctx, join))
			for range 2 {
				_, err = joins.FinishJoin(ctx, join.ID, roles.FinishRequest{Seal: true, Then: func(roles.Join) (*outmill.Record, error) {
					return record("done", "follows", "c1"), nil
				}})
				require.NoError(t, err)
			}
			requireLine(watermill.DebugLogLevel, "Records appended",
				watermill.LogFields{"count": 1, "topic": "done", "correlation_id": "c1", "message_uuid": "follows"})
		})
	})

	t.Run("the level of a stores appends can be set", func(t *testing.T) {
		t.Parallel()
		eachStore(t, slog.LevelInfo, func(t *testing.T, s stand, log *journal.Journal) {
			require.NoError(t, s.Append(t.Context(), record("orders", "m1", "c1")))
			lines := log.Take()
			require.Len(t, lines, 1)
			require.Equal(t, watermill.InfoLogLevel, lines[0].Level)
		})
	})
}
