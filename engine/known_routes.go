package engine

import (
	"sync/atomic"

	"github.com/outmill/outmill/storekit"
)

// knownRoutes has the routing table that the process read last. The zero value has none. It
// is safe for concurrent use.
type knownRoutes struct {
	table atomic.Pointer[storekit.RoutingTable]
}

// load returns the table, or nil.
func (k *knownRoutes) load() *storekit.RoutingTable { return k.table.Load() }

// keep keeps the table if it is newer than the known one.
func (k *knownRoutes) keep(table *storekit.RoutingTable) {
	for known := k.table.Load(); known == nil || known.Generation < table.Generation; known = k.table.Load() {
		if k.table.CompareAndSwap(known, table) {
			return
		}
	}
}

// renew keeps the table that a call has read, which knew the table known when it began. It keeps a table with a smaller
// generation too, unless another call has kept one since: then the database is older than before, because it was restored.
func (k *knownRoutes) renew(known, table *storekit.RoutingTable) {
	if table != known && !k.table.CompareAndSwap(known, table) {
		k.keep(table)
	}
}

// forget removes the table, unless another one is known by now.
func (k *knownRoutes) forget(table *storekit.RoutingTable) { k.table.CompareAndSwap(table, nil) }
