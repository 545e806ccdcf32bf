package postgres

import (
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/postgres/internal/conns"
)

// NewFromDB returns a store on a pool of database/sql that the user opened and closes, whose driver
// is pgx (v5): sql.Open("pgx", url), or stdlib.OpenDB. It does not connect. A nil logger logs nothing.
// Errors: outmill.ErrInvalidConfig, also for another driver such as lib/pq.
//
// The store does all its work on this pool, by the connections of pgx below it. Two things differ from
// a store of New or Open:
//
//   - The transactions of Transact, and so those of an inbox and of sagas, are a *sql.Tx of the pool.
//     There each statement of the store is a round trip of its own. Config.DB is the pool, and may
//     only be nil or the pool itself.
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
	if err := conns.CheckDB(db, config.DB); err != nil {
		return nil, err
	}
	config.DB = db
	return newStore(conns.OfSQL(db), config, logger)
}
