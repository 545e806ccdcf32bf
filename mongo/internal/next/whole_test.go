//go:build outmill_next_open

package next_test

// whole has the suites run to their full length: they take many minutes, and not all of that has passed yet.
const whole = true
