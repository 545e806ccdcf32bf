package mysql_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/mysql"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	t.Run("has the defaults that docs/configuration.md names", func(t *testing.T) {
		t.Parallel()
		testenv.RequireDocumentedDefaults(t, "mysql", true, mysql.Defaults())
	})
}
