// Package testenv has the common helpers of tests on real engines: limits of time, unique
// names, and directories for the files of servers.
//
// A separate package provides each engine, so that the tests of a store need only the
// driver of that store: kafkatest, mongotest, postgrestest and sqlservertest. The program
// in engines starts engines once for many test binaries.
package testenv
