// Package memdriver is a driver in memory. It is the reference of package driver: what another driver does in
// its database, this one does in a few lines of Go. storetest/memstore makes a store of it for tests of
// applications.
package memdriver
