package driver_test

import (
	"testing"

	"github.com/outmill/outmill/storetest/joinstest"
)

func TestConformance_Joins(t *testing.T) {
	t.Parallel()
	suite := suiteOf(0)
	suite.Unsupported = map[string]string{
		"workers: a user's transaction that starts joins and attaches steps stalls nothing while it is open": "SQLite has one writer at a time",
	}
	joinstest.Run(t, suite)
}
