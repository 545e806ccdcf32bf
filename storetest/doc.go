// Package storetest is the contract of an outmill.Store as tests, one sentence
// each. A store keeps the contract when [Run] passes:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{New: …, Reopen: …, Elapse: …, Begin: …})
//	}
//
// What has to do with acks runs twice, for a store that deletes what is acked
// and for one that retains it. Unless OUTMILL_TEST_ALL=1 is set, the second time
// takes only the sections about settling, inspecting and tidying up. Names of tests are sentences of the contract; numbers such
// as OBX-012 are explained in docs/spec.md. Nothing in the suite
// sleeps: [Harness.Elapse] makes the database's time pass.
//
// Random walks compare the store with a model of a queue, for a second, or for five
// with OUTMILL_TEST_ALL=1.
// With -rapid.checks given, as many walks are made as it says; -rapid.steps
// sets their length. Sizes that are about size alone are a tenth without
// OUTMILL_TEST_ALL=1, and under -race.
package storetest
