package forwarder_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

// TestMain makes of the test binary a program that forwards, where a test
// starts it as one.
func TestMain(m *testing.M) {
	if file := os.Getenv(childFile); file != "" {
		os.Exit(forwardUntilKilled(file, os.Getenv(childBrokers)))
	}
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m,
		// sarama's metrics have one for the whole process, which never ends.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// A Watermill router whose Run fails leaves this behind.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"),
	)
}
