package postgres_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

// Test_a_store_keeps_the_contract runs on the machine's version already.
func Test_a_store_keeps_the_contract_on_each_version_that_the_environment_names(t *testing.T) {
	t.Parallel()
	testenv.EachPostgres(t, func(t *testing.T, url string) {
		db := connect(t, url)
		t.Log(valueOf[string](t, db, "SELECT version()"))
		store := newStore(t, db, postgres.Config{})
		require.NoError(t, store.Ensure(t.Context()))
		everything(t, store)
		if os.Getenv("OUTMILL_TEST_POSTGRES_VERSIONS") != "" {
			storetest.Run(t, harness(db, postgres.LaneRows))
		}
	})
}
