package postgres

import (
	"runtime"
	"sync"
	"weak"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/storekit"
)

// admissions are those of the pools of this process. Stores that share a pool share its connections.
var admissions sync.Map // of the weak.Pointer of a pool to *storekit.Admission

func admissionOf(conns connections) *storekit.Admission {
	if own, ok := conns.(sqlConnections); ok {
		return admissionTo(own.db)
	}
	return admissionTo(conns.(pgxConnections).Pool)
}

func admissionTo[T any](pool *T) *storekit.Admission {
	key := weak.Make(pool)
	found, known := admissions.LoadOrStore(key, &storekit.Admission{})
	if !known {
		runtime.AddCleanup(pool, func(key weak.Pointer[T]) { admissions.Delete(key) }, key)
	}
	return found.(*storekit.Admission)
}

// handlers is how many transactions of handlers are admitted at a time. The user may change the
// size of a pool of database/sql.
func (s *Store) handlers() int { return storekit.HandlersOf(s.conns.most()) }

// morePool is the remedy for a pool that is too small.
func (s *Store) morePool() string {
	if _, ok := s.conns.(sqlConnections); ok {
		return "Raise SetMaxOpenConns of your *sql.DB"
	}
	return "Raise pool_max_conns in the URL, or MaxConns of your pgxpool.Config"
}

// tellWaiting logs that handlers wait for connections.
func (s *Store) tellWaiting() {
	s.logger.Info("More handlers want a transaction than the pool has connections for, so they wait for each other; one connection "+
		"is kept for claims and leases. "+s.morePool()+", or lower subscriber.Config.MaxInFlight",
		watermill.LogFields{"connections": s.handlers() + 1})
}
