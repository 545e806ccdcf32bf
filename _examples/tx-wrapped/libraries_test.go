package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	gormtests "gorm.io/gorm/utils/tests"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

// engine is a database with the outbox of a store and a table of sales.
type engine struct {
	*shop
	store outmill.Store
}

func newEngine(t *testing.T, db *sql.DB, store interface {
	outmill.Store
	transactional
}, bunDialect schema.Dialect, gormDialect gorm.Dialector, entDialect, sqlxDriver string,
) engine {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	require.NoError(t, err)
	orm, err := gorm.Open(gormDialect, &gorm.Config{ConnPool: db, Logger: logger.Discard})
	require.NoError(t, err)
	s := &shop{
		db: db, store: store, pub: pub,
		bun: bun.NewDB(db, bunDialect), sqlx: sqlx.NewDb(db, sqlxDriver), gorm: orm, ent: entsql.OpenDB(entDialect, db),
	}
	require.NoError(t, s.open(t.Context()))
	return engine{s, store}
}

// eachEngine runs the test on SQLite and on PostgreSQL, both lanes.
func eachEngine(t *testing.T, test func(t *testing.T, e engine)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{}, nil)
		require.NoError(t, err)
		test(t, newEngine(t, store.DB(), store, sqlitedialect.New(), gormtests.DummyDialector{}, dialect.SQLite, "sqlite3"))
	})
	for _, lane := range []postgres.Lane{postgres.LaneRows, postgres.LaneLog} {
		t.Run("postgres, "+string(lane), func(t *testing.T) {
			t.Parallel()
			url := postgrestest.Database(t)
			db, err := sql.Open("pgx", url)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			store, err := postgres.Open(t.Context(), url, postgres.Config{Lane: lane}, nil)
			require.NoError(t, err)
			test(t, newEngine(t, db, store, pgdialect.New(), gormpostgres.New(gormpostgres.Config{Conn: db}), dialect.Postgres, "pgx"))
		})
	}
}

// published are the payloads in the outbox.
func (e engine) published(t *testing.T) []string {
	t.Helper()
	records, err := e.store.List(t.Context(), outmill.ListQuery{})
	require.NoError(t, err)
	var items []string
	for _, r := range records {
		items = append(items, string(r.Payload))
	}
	return items
}

func Test_each_librarys_transaction_takes_the_message_along_when_it_commits_and_when_it_rolls_back(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e engine) {
		var want []string
		for _, w := range e.ways() {
			require.NoError(t, w.sell(t.Context(), w.bought, nil), w.name)
			require.ErrorIs(t, w.sell(t.Context(), w.refused, errCardDeclined), errCardDeclined, w.name)
			want = append(want, w.bought)
		}
		sold, err := e.sold(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, want, sold)
		require.ElementsMatch(t, want, e.published(t))
	})
}

func Test_each_librarys_transaction_is_the_one_of_database_sql(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e engine) {
		txOf := func(tx any) *sql.Tx {
			found, err := e.store.TxOf(e.shop.store.WithTx(t.Context(), tx))
			require.NoError(t, err)
			require.IsType(t, &sql.Tx{}, found)
			return found.(*sql.Tx)
		}
		undo := errors.New("undo")
		require.ErrorIs(t, e.bun.RunInTx(t.Context(), nil, func(_ context.Context, tx bun.Tx) error {
			require.Same(t, tx.Tx, txOf(tx))
			require.Same(t, tx.Tx, txOf(&tx))
			require.Same(t, tx.Tx, txOf(bun.IDB(tx)))
			return undo
		}), undo)

		x, err := e.sqlx.Beginx()
		require.NoError(t, err)
		require.Same(t, x.Tx, txOf(x))
		require.NoError(t, x.Rollback())

		require.ErrorIs(t, e.gorm.Transaction(func(tx *gorm.DB) error {
			pool := tx.Statement.ConnPool.(*sql.Tx)
			require.Same(t, pool, txOf(pool))
			// With the setting PrepareStmt. A session that has it leaves a goroutine.
			require.Same(t, pool, txOf(&gorm.PreparedStmtTX{Tx: pool}))
			return undo
		}), undo)

		n, err := e.ent.Tx(t.Context())
		require.NoError(t, err)
		require.Same(t, n.(*entsql.Tx).ExecQuerier, txOf(n))
		require.Same(t, txOf(n), txOf(n.(*entsql.Tx).ExecQuerier))
		require.Same(t, txOf(n), txOf(dialect.DebugTx{Tx: n}))
		require.NoError(t, n.Rollback())
	})
}

// entConfig and entTx are as ent generates them without the feature
// sql/execquery.
type (
	entConfig struct{ driver dialect.Driver }
	entTx     struct{ entConfig }
)

func Test_what_a_library_does_not_mean_as_a_transaction_is_refused_with_the_expression_that_is_one(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e engine) {
		require.NoError(t, e.gorm.Transaction(func(tx *gorm.DB) error {
			for name, c := range map[string]struct {
				tx   any
				says string
			}{
				"gorm's DB":                        {tx, "pass tx.Statement.ConnPool"},
				"gorm's pool":                      {e.gorm.Statement.ConnPool, "is a pool"},
				"gorm's pool with statements":      {&gorm.PreparedStmtDB{ConnPool: e.db}, "is a pool"},
				"bun's DB":                         {e.bun, "is a pool"},
				"sqlx's DB":                        {e.sqlx, "is a pool"},
				"ent's driver":                     {e.ent, "is a pool"},
				"a transaction that ent generated": {&entTx{entConfig{e.ent}}, "tx.(*entsql.Tx).ExecQuerier"},
			} {
				_, err := e.store.TxOf(e.shop.store.WithTx(t.Context(), c.tx))
				require.ErrorIs(t, err, outmill.ErrInvalidTx, name)
				require.ErrorContains(t, err, c.says, name)
			}
			return nil
		}))
		require.Empty(t, e.published(t))
	})
}
