package outmilltest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// recorder stands in for the *testing.T of a user's test, to see it fail. What
// it does not override is the real test's.
type recorder struct {
	testing.TB
	// returning makes Fatalf return, as some stand-ins do.
	returning bool
	failures  []string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
	if !r.returning {
		runtime.Goexit()
	}
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// failureOf runs a user's test and returns how it failed, "" if it did not.
func failureOf(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return strings.Join(r.failures, "\n")
}
