package storekit

import "sync/atomic"

// KnownRoutes has the routing table that the process read last. The zero value has none. It
// is safe for concurrent use.
type KnownRoutes struct{ table atomic.Pointer[RoutingTable] }

// Load returns the table, or nil.
func (k *KnownRoutes) Load() *RoutingTable { return k.table.Load() }

// Keep keeps the table if it is newer than the known one.
func (k *KnownRoutes) Keep(table *RoutingTable) {
	for known := k.table.Load(); known == nil || known.Generation < table.Generation; known = k.table.Load() {
		if k.table.CompareAndSwap(known, table) {
			return
		}
	}
}

// Renew keeps the table that a call has read, which knew the table known when it began. It keeps a table with a smaller
// generation too, unless another call has kept one since: then the database is older than before, because it was restored.
func (k *KnownRoutes) Renew(known, table *RoutingTable) {
	if table != known && !k.table.CompareAndSwap(known, table) {
		k.Keep(table)
	}
}

// Forget removes the table, unless another one is known by now.
func (k *KnownRoutes) Forget(table *RoutingTable) { k.table.CompareAndSwap(table, nil) }
