// Package walks makes random walks for as long as there is time.
package walks

import (
	"flag"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outmill/outmill/internal/testenv"
)

// Check is rapid.Check with at least that many walks, and with OUTMILL_TEST_ALL=1 as many more as a minute has room for. The flag
// -rapid.checks sets their number instead.
func Check(t *testing.T, least int, walk func(*rapid.T)) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	limited, failed, made, began := checks.Value.String() == checks.DefValue, false, 0, time.Now()
	rapid.Check(t, func(rt *rapid.T) {
		// Once a walk has failed, rapid makes more of them to find a short one.
		if limited && !failed && made >= least && (!testenv.All() || time.Since(began) > time.Minute) {
			return
		}
		made++
		passed := false
		defer func() { failed = failed || !passed }()
		walk(rt)
		passed = true
	})
	t.Logf("%d walks", made)
}
