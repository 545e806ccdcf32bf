package allstores

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(envStopped); task != "" {
		os.Exit(playStopped(task))
	}
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m,
		// Watermill's Deduplicator cleans its map for ever.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message/router/middleware.(*mapExpiringKeyRepository).cleanOutLoop"),
	)
}
