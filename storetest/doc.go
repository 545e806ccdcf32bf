// Package storetest is the contract of an outmill.Store as tests, one sentence
// each. Whoever writes a store passes it when [Run] passes:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{New: …, Reopen: …, Elapse: …, Begin: …})
//	}
//
// The suite runs twice, for a store that deletes what is acked and for one
// that retains it. Names of tests are sentences of the contract; numbers such
// as OBX-012 point to the functional specification. Nothing in the suite
// sleeps: [Harness.Elapse] makes the database's time pass.
//
// A random walk compares the store with a model of a queue. rapid's flags set
// its length (-rapid.checks, -rapid.steps); -short makes it a tenth.
package storetest
