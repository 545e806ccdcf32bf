package subscriber_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

// TestMain looks for goroutines that a test left behind. A test that needs
// another process starts this binary again with a role.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m,
		// Watermill's Deduplicator never stops its cleaning goroutine.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message/router/middleware.(*mapExpiringKeyRepository).cleanOutLoop"),
	)
}
