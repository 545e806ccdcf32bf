package forwarder_test

const (
	childFile    = "OUTMILL_TEST_FORWARD_FROM"
	childBrokers = "OUTMILL_TEST_FORWARD_TO"
)

func forwardUntilKilled(file, brokers string) int { return 0 }
