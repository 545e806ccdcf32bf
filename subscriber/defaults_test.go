package subscriber_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/subscriber"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	t.Run("has the defaults that docs/configuration.md names (OBX-053, OBX-116, OBX-117)", func(t *testing.T) {
		t.Parallel()
		testenv.RequireDocumentedDefaults(t, "subscriber", false, subscriber.Defaults())
	})
}
