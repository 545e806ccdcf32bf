// Package crash ends the process with SIGKILL at a numbered step, in programs that are built
// with the tag outmill_crash, so that tests see what a crash between any two steps leaves
// behind. Without the tag At does nothing and costs nothing.
package crash

// EnvAt names the environment variable with the step at which the process ends, and how
// often it comes to it before, such as "noted:2".
const EnvAt = "OUTMILL_CRASH_AT"
