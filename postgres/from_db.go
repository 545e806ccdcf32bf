package postgres

import (
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres/internal/pools"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// NewFromDB returns a store on a pool of database/sql that the user opened and closes, whose driver
// is pgx (v5): sql.Open("pgx", url), or stdlib.OpenDB. It does not connect. A nil logger logs nothing.
// Errors: outmill.ErrInvalidConfig, also for another driver such as lib/pq.
//
// The store does all its work on this pool, by the connections of pgx below it, and with COPY where
// that is faster. Two things differ from a store of New or Open:
//
//   - The transactions of Transact, and so those of an inbox and of sagas, are a *sql.Tx of the pool.
//     There each statement of the store is a round trip of its own, and COPY is not used. Config.DB
//     is the pool, and may only be nil or the pool itself.
//   - Readers listen on a connection beside the pool, as with New. The store opens it with the
//     settings of one of the pool's connections. Where passwords change between two connections, or
//     behind a proxy that pools transactions, set Config.ListenURL. Until it works, readers poll.
//
// database/sql keeps 2 idle connections, and has no largest number of open ones, unless you set both. Set them
// to the same number, so that connections are used again and handlers leave one for the store:
//
//	db.SetMaxOpenConns(20)
//	db.SetMaxIdleConns(20)
//
// monitor.Doctor in the same program reports a pool that closes connections because of the former
// (pool_idle). Pool returns nil.
func NewFromDB(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	switch {
	case db == nil:
		return nil, fmt.Errorf(`%w: postgres.NewFromDB: db is nil: want a *sql.DB from sql.Open("pgx", url)`, outmill.ErrInvalidConfig)
	case config.DB != nil && config.DB != db:
		return nil, storekit.InvalidConfig("postgres.NewFromDB: Config.DB is another *sql.DB: leave it nil")
	}
	if _, ok := db.Driver().(*stdlib.Driver); !ok {
		return nil, pools.NotPgx(db.Driver())
	}
	config.DB = db
	return newStore(sqlConnections{db}, config, logger)
}

// idleClosed is the number of connections from which a pool that closes them is a finding.
const idleClosed = 100

// examinePool looks whether database/sql closes connections that the store could use again.
func (s *Store) examinePool(e *roles.Examination) {
	own, ok := s.conns.(sqlConnections)
	if !ok {
		return
	}
	if closed := own.db.Stats().MaxIdleClosed; closed >= idleClosed {
		e.Add(roles.Finding{
			Code: "pool_idle",
			Text: fmt.Sprintf("The *sql.DB has closed %d connections since its start because it keeps fewer idle ones than work at a time, so "+
				"calls wait for new connections.", closed),
			Remedy: "Call SetMaxIdleConns of the *sql.DB with the number of SetMaxOpenConns.",
		})
	}
}
