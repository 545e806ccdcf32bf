package outmilltest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// recorder replaces the *testing.T of a user's test and records its failure. Methods that
// it does not override are those of the real test.
type recorder struct {
	testing.TB
	// returning makes Fatalf return, as in some fakes of testing.TB.
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

// failureOf runs a user's test and returns its failure, or "" if it passed.
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
