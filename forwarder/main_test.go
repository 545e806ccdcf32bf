package forwarder_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

// TestMain runs the test binary as a forwarding program if a test started it as one.
func TestMain(m *testing.M) {
	if file := os.Getenv(childFile); file != "" {
		os.Exit(forwardUntilKilled(file, os.Getenv(childBrokers)))
	}
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m,
		// sarama's metrics run one goroutine per process, which never ends.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// A Watermill router whose Run fails leaks this goroutine.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"),
	)
}
