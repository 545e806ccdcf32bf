package inbox_test

import (
	"testing"

	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/internal/testenv"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	t.Run("has the defaults that docs/configuration.md names", func(t *testing.T) {
		t.Parallel()
		testenv.RequireDocumentedDefaults(t, "inbox", false, inbox.Defaults())
	})
}
