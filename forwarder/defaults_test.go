package forwarder_test

import (
	"testing"

	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	t.Run("has the defaults that docs/configuration.md names (OBX-053)", func(t *testing.T) {
		t.Parallel()
		testenv.RequireDocumentedDefaults(t, "forwarder", false, forwarder.Defaults())
	})
}
