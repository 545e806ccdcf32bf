// Package next is a driver of package engine on MongoDB, which only tests reach. See docs/mongodb-next.md.
//
// Rows are documents, and changes of rows are compare-and-swap. A claim without an order writes its leases, and an ack its deletions,
// outside of a transaction. All else that writes is a transaction of MongoDB, which begins with its first write or lock; what was
// read before is compared by the writes.
package next
