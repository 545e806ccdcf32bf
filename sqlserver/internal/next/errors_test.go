package next_test

import (
	"errors"
	"fmt"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/sqlserver/internal/next"
)

// A transaction runs again after what passes, also where the deadlock is not the first of several errors.
func TestPasses(t *testing.T) {
	t.Parallel()
	refused := mssql.Error{Number: 2627}
	for _, err := range []error{
		mssql.Error{Number: 1205}, mssql.Error{Number: 1222}, fmt.Errorf("a call: %w", mssql.Error{Number: 50901}), driver.ErrBusy,
		mssql.Error{Number: 3621, All: []mssql.Error{{Number: 3621}, {Number: 1205}}},
	} {
		require.True(t, next.Passes(err), "%v", err)
	}
	for _, err := range []error{nil, refused, errors.New("another"), outmill.ErrInvalidTx, mssql.Error{Number: 208}} {
		require.False(t, next.Passes(err), "%v", err)
	}
}

// What the server says in a transaction that has ended is an ErrInvalidTx of the caller's, and never passes.
func TestEnded(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		mssql.Error{Number: 50902}, mssql.Error{Number: 3930},
		mssql.Error{Message: "Unexpected: the server does not have an active transaction"},
	} {
		require.ErrorIs(t, next.Ended(err), outmill.ErrInvalidTx)
		require.False(t, next.Passes(next.Ended(err)))
	}
	require.NotErrorIs(t, next.Ended(mssql.Error{Number: 1205}), outmill.ErrInvalidTx)
	require.NoError(t, next.Ended(nil))
}
