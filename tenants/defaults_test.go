package tenants_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/tenants"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	t.Run("has the defaults that docs/configuration.md names (OBX-076)", func(t *testing.T) {
		t.Parallel()
		testenv.RequireDocumentedDefaults(t, "tenants", false, tenants.Defaults())
	})
}
