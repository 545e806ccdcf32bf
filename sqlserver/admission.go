package sqlserver

import (
	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/storekit"
)

// moreConns is the remedy for a pool that is too small.
const moreConns = "Raise SetMaxOpenConns of the *sql.DB"

// handlers is how many transactions of handlers have a connection at a time; 0 is no limit.
func (s *Store) handlers() int { return storekit.HandlersOf(s.db.Stats().MaxOpenConnections) }

// tellWaiting logs that handlers wait for connections.
func (s *Store) tellWaiting() {
	s.logger.Info("More handlers want a transaction than the pool has connections for, so they wait for each other; one connection "+
		"is kept for claims and leases. "+moreConns+", or lower subscriber.Config.MaxInFlight",
		watermill.LogFields{"connections": s.handlers() + 1})
}
