package sqlkit_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// A missing table is a failure, a missing view is none, and a server may have written a name in lower case.
func TestExamine(t *testing.T) {
	t.Parallel()
	var e roles.Examination
	sqlkit.Examine(&e, []sqlkit.Part{{"table", "meta"}, {"table", "records"}, {"view", "readable"}}, "My_", []string{"my_meta", "readable"})
	require.Len(t, e.Findings, 2)
	assert.Equal(t, "My_records", e.Findings[0].Subject)
	assert.True(t, e.Findings[0].Failure)
	assert.Equal(t, "view_missing", e.Findings[1].Code)
	assert.False(t, e.Findings[1].Failure)
}
