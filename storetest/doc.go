// Package storetest tests an outmill.Store. It has one test for each sentence of the
// contract. A store keeps the contract if [Run] passes:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Engine{New: newHarness})
//	}
//
// Package joinstest tests joins, and package txtest transactions, acks in them, inbox and
// sagas, with the same [Engine].
//
// # The harness
//
// Engine.New returns a [Harness] for each sentence, with an empty store on a database,
// schema or prefix of its own, made with [Options]: Retain and DedupWindow are settings of
// the store, and NoSchema asks for a database without a schema. Sentences run in parallel, so
// harnesses share only the server. The harness closes its stores, and fails the test if a
// method of it fails.
//
// Elapse makes the database's time pass, because no test of the suite sleeps. If the engine's
// clock cannot be moved, subtract the duration from every time in the tables: of records,
// leases, registrations, dedup keys, joins, notes and sagas.
//
// Begin begins a transaction as a user would. Most sentences have one open transaction at a
// time. Sentences about stalls have several: for an engine with one writer, name them in
// Unsupported.
//
// A harness may implement further interfaces. If it does not, these sentences are skipped:
//
//   - [Limited]: the largest payload ("append").
//   - [Applier], [Ager]: Statements and a newer schema ("schema").
//   - [Viewer]: the view for people ("inspect").
//   - [Wired]: the values that a call sends ("clock"), and its round trips ("round trips").
//   - [Fair]: a store that has fair topics ("parts").
//   - [Transactor], [Watcher]: how to repeat transactions, and state to disturb ("stress").
//   - [Repeater], [Doubtful]: the failures after which Transact repeats (txtest, "transact").
//
// # Modes and settings
//
// The suite runs twice: for a store that deletes acked records, and for a store that retains
// them. The second run has only the sections for which that makes a difference, such as
// "inspect", "find" and "janitor", unless OUTMILL_TEST_ALL=1 is set. Names of tests are sentences of the contract; docs/spec.md
// explains numbers such as OBX-012. The flag -storetest.list prints the names and runs no
// test.
//
// The section "memory" measures the memory of a process, under Linux. So it starts the test binary again, for one sentence alone.
//
// Random walks compare the store with a model of a queue, for 1 s, or for 5 s with
// OUTMILL_TEST_ALL=1. -rapid.checks sets the number of walks instead, and -rapid.steps their
// length. Tests of large amounts use a tenth of them without OUTMILL_TEST_ALL=1, and under
// -race.
package storetest
