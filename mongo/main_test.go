package mongo_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain keeps the random walks short: the engine that can be had everywhere
// is a slow one. On a MongoDB, -rapid.checks=100 has them as long as elsewhere.
func TestMain(m *testing.M) {
	testing.Init()
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
