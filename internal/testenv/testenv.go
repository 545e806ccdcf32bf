// Package testenv has what tests on real engines share: how long they may take,
// names that no other test has, and where servers keep their files.
//
// A package of its own provides each engine, so that the tests of a store need the
// driver of that store only: kafkatest, mongotest, postgrestest and sqlservertest.
// The program in engines starts engines once for many test binaries.
package testenv
