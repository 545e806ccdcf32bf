// Package driver is the driver of package engine for MongoDB. docs/mongodb.md draws its collections, and says why it is right.
//
// Rows are documents, and changes of rows are compare-and-swap. A claim without an order writes its leases, and an ack its deletions,
// outside of a transaction. All else that writes is a transaction of MongoDB, which begins with its first write or lock; what was
// read before is compared by the writes.
//
// Read driver.go and tx.go first, and then page.go, lease.go and apply.go.
package driver
