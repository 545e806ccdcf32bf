// Package storetest is the contract of an outmill.Store as tests, one sentence
// each. A store keeps the contract when [Run] passes:
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
// the store, and NoSchema asks for a database that Ensure has not seen. Sentences run in
// parallel, so harnesses share nothing but the server. The harness closes its stores, and
// fails the test where it cannot do its work.
//
// Elapse makes the database's time pass, because nothing in the suite sleeps. Where the
// clock cannot be moved, take the duration from every time in the tables: of records, leases,
// registrations, dedup keys, joins, notes and sagas.
//
// Begin begins a transaction as a user would. Most sentences have one open at a time; those
// about stalls have more, and are for Unsupported on an engine with one writer.
//
// A harness may have more methods, and without them these sentences are skipped:
//
//   - [Limited]: the largest payload ("append").
//   - [Applier], [Ager]: Statements and a newer schema ("schema").
//   - [Viewer]: the view for people ("inspect").
//   - [Wired]: what a call sends ("clock"), and how often ("round trips").
//   - [Transactor], [Watcher]: how to repeat transactions, and state to disturb ("stress").
//   - [Repeater], [Doubtful]: what Transact repeats (txtest, "transact").
//
// # Modes and settings
//
// What has to do with acks runs twice, for a store that deletes what is acked
// and for one that retains it. Unless OUTMILL_TEST_ALL=1 is set, the second time
// takes only the sections about settling, inspecting and tidying up. Names of tests are
// sentences of the contract; numbers such as OBX-012 are explained in docs/spec.md. The flag
// -storetest.list prints the names and tests none.
//
// Random walks compare the store with a model of a queue, for a second, or for five
// with OUTMILL_TEST_ALL=1.
// With -rapid.checks given, as many walks are made as it says; -rapid.steps
// sets their length. Sizes that are about size alone are a tenth without
// OUTMILL_TEST_ALL=1, and under -race.
package storetest
