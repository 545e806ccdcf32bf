package postgres

import (
	"runtime"
	"sync"
	"weak"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/storekit"
)

// admissions are those of the pools of this process. Stores that share a pool share its connections.
var admissions sync.Map // of weak.Pointer[pgxpool.Pool] to *storekit.Admission

func admissionOf(pool *pgxpool.Pool) *storekit.Admission {
	key := weak.Make(pool)
	found, known := admissions.LoadOrStore(key, &storekit.Admission{})
	if !known {
		runtime.AddCleanup(pool, func(key weak.Pointer[pgxpool.Pool]) { admissions.Delete(key) }, key)
	}
	return found.(*storekit.Admission)
}

// morePool is the remedy for a pool that is too small.
const morePool = "Raise pool_max_conns in the URL, or MaxConns of your pgxpool.Config"

// tellWaiting logs that handlers wait for connections.
func (s *Store) tellWaiting() {
	s.logger.Info("More handlers want a transaction than the pool has connections for, so they wait for each other; one connection "+
		"is kept for claims and leases. "+morePool+", or lower subscriber.Config.MaxInFlight", watermill.LogFields{"connections": s.handlers + 1})
}
