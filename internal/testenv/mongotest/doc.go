// Package mongotest provides real MongoDB servers for tests: the replica set that
// OUTMILL_TEST_MONGODB_URL names, otherwise the mongod on PATH, which it starts.
//
// Tests never share a database: see Database.
package mongotest
