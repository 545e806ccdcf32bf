package storekit

import "sync/atomic"

// KnownRoutes has the routing table that a process has read last. The zero value has none;
// it may be used concurrently.
type KnownRoutes struct{ table atomic.Pointer[RoutingTable] }

// Load returns the table, nil where there is none.
func (k *KnownRoutes) Load() *RoutingTable { return k.table.Load() }

// Keep keeps the table if it is newer than the known one.
func (k *KnownRoutes) Keep(table *RoutingTable) {
	for known := k.table.Load(); known == nil || known.Generation < table.Generation; known = k.table.Load() {
		if k.table.CompareAndSwap(known, table) {
			return
		}
	}
}

// Forget forgets the table, unless another one is known by now.
func (k *KnownRoutes) Forget(table *RoutingTable) { k.table.CompareAndSwap(table, nil) }
