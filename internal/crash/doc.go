// Package crash kills the process with SIGKILL at a named step, or stops it with SIGSTOP until it
// gets SIGCONT, if the program was built with the tag outmill_crash. So tests can check the state
// after a crash between any two steps, and of a process that goes on after its lease has ended.
// Without the tag At does nothing and costs nothing.
package crash

// EnvAt names the environment variable with the step at which the process is killed, and the
// number of times that it passes the step before, such as "noted:2".
const EnvAt = "OUTMILL_CRASH_AT"

// EnvStop is EnvAt for a process that is stopped. It prints Stopped before.
const (
	EnvStop = "OUTMILL_CRASH_STOP"
	Stopped = "stopped at the step"
)

// EnvBatch names the environment variable with the number of records that the first transaction
// of a Requeue or a Skip brings back, so that these take several transactions for a few records.
// storekit reads it, because it imports nothing internal.
const EnvBatch = "OUTMILL_CRASH_BATCH"

// BeforeCommit and AfterCommit are steps of the transactions of the stores. A single statement
// that is a transaction has them, too.
const (
	BeforeCommit = "before commit"
	AfterCommit  = "after commit"
)
