package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestSchemaVersion_Check(t *testing.T) {
	t.Parallel()
	const newest = 3
	for name, c := range map[string]struct {
		found storekit.SchemaVersion
		want  error
	}{
		"no schema is missing":                                 {storekit.SchemaVersion{}, outmill.ErrSchemaMissing},
		"an older one is outdated":                             {storekit.SchemaVersion{Version: 2, Compatible: 1}, outmill.ErrSchemaOutdated},
		"the newest one is right":                              {storekit.SchemaVersion{Version: 3, Compatible: 3}, nil},
		"a newer one that older programs know is right":        {storekit.SchemaVersion{Version: 5, Compatible: 3}, nil},
		"a newer one that older programs do not know is newer": {storekit.SchemaVersion{Version: 5, Compatible: 4}, outmill.ErrSchemaNewer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, c.found.Check(newest), c.want)
		})
	}
}
