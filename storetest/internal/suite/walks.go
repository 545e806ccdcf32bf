package suite

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// MakeWalks makes all its walks on one store, which begin empties at first: some at
// least, and as many as there is time for. It begins a walk, and returns its actions.
func MakeWalks(e *Env, some int, begin func(*Walk) map[string]func(*rapid.T)) {
	walks, failed := 0, false
	// rapid has one T for all walks by its seeds, and others for those by a file, or by bits of a walk before.
	var of *rapid.T
	nth := 0
	checks := flag.Lookup("rapid.checks")
	limited := checks.Value.String() == checks.DefValue
	began := time.Now()
	rapid.Check(e.T, func(t *rapid.T) {
		// Once a walk has failed, rapid makes more of them to find a short one.
		if limited && !failed && walks >= few(some) && time.Since(began) > walking() {
			return
		}
		if nth++; t != of {
			of, nth = t, 0
		}
		told := &WalkT{T: t, test: e.T, nth: nth, quiet: failed}
		passed := false
		defer func() {
			if passed || told.failed {
				failed = failed || told.failed
				return
			}
			why := recover()
			// A walk that rapid's bits do not suffice for is none: they are those of a file of long ago.
			if fmt.Sprintf("%T", why) != "rapid.invalidData" {
				failed = true
				told.tell(fmt.Sprint(why))
			}
			if why != nil {
				panic(why)
			}
		}()
		walks++
		actions := told.watch(begin(&Walk{T: told, Env: e, Store: e.Store, prefix: fmt.Sprintf("w%d.", walks)}))
		// Twice, because a walk must be long to get anywhere.
		t.Repeat(actions)
		t.Repeat(actions)
		passed = true
	})
	e.T.Logf("%d walks", walks)
}

// WalkT is the T of a walk. The first failure of all walks is logged at once: rapid shows only what the shortest walk
// that it has found says when it runs again, and where the failure came from the walks before or from a moment, that
// says nothing.
type WalkT struct {
	*rapid.T
	test testing.TB
	// nth is how many walks there were before, and done the actions of this one.
	nth  int
	done []string
	// quiet says that a failure was logged, and failed that this walk has one.
	quiet, failed bool
}

// Errorf notes a failure.
func (t *WalkT) Errorf(format string, args ...any) {
	t.Helper()
	t.tell(fmt.Sprintf(format, args...))
	t.T.Errorf(format, args...)
}

// Fatalf notes a failure, and ends the walk.
func (t *WalkT) Fatalf(format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
	t.FailNow()
}

func (t *WalkT) tell(text string) {
	if t.failed = true; t.quiet {
		return
	}
	t.quiet = true
	// rapid's seeds are those of the first walk, and 1, 3, 6, 10, … more.
	t.test.Logf("walk %d fails after %s:\n%s\nTo make the walks before it too, subtract %d from the seed that rapid names",
		t.nth+1, strings.Join(t.done, ", "), text, t.nth*(t.nth+1)/2)
}

// watch has the actions noted.
func (t *WalkT) watch(actions map[string]func(*rapid.T)) map[string]func(*rapid.T) {
	watched := make(map[string]func(*rapid.T), len(actions))
	for name, action := range actions {
		watched[name] = func(rt *rapid.T) {
			if name != "" {
				t.done = append(t.done, name)
			}
			action(rt)
		}
	}
	return watched
}
