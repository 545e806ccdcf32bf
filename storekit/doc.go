// Package storekit is what authors of stores and of publishers need, and users do not:
// the checks that every store makes before it writes, messages as records and back, the
// transaction in the context, the contract of joins and of wake-ups, and the batches
// that a forwarder sends. docs/stores.md explains how to write a store, and package
// storetest tests one.
package storekit
