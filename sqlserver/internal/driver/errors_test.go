package driver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	sqlserver "github.com/outmill/outmill/sqlserver/internal/driver"
)

// A transaction runs again after what passes, also where the deadlock is not the first of several errors.
func TestPasses(t *testing.T) {
	t.Parallel()
	t.Run("the number of an error decides whether the call is repeated (OBX-099)", func(t *testing.T) {
		t.Parallel()
		for _, number := range []int32{
			1205, 1222, 3960, 50901,
			// A timeout for memory; an availability group.
			8645, 8651, 976, 983, 3906,
			// Azure SQL, while it moves or limits a database.
			615, 926, 4060, 4221, 10928, 10929, 10936, 40143, 40197, 40501, 40540, 40613, 42108, 42109, 49918, 49919, 49920, 49983,
		} {
			require.True(t, sqlserver.Passes(mssql.Error{Number: number}), number)
			require.True(t, sqlserver.Passes(fmt.Errorf("wrapped: %w", mssql.Error{Number: number})), number)
		}
		for _, number := range []int32{
			// A missing object, right, type or procedure; a duplicate; a value that is too long;
			// a division by zero; a refused login; a raised error.
			0, 208, 229, 2715, 2812, 2627, 2601, 2628, 8152, 8134, 18456, 50000, 50902, 33557097,
		} {
			require.False(t, sqlserver.Passes(mssql.Error{Number: number}), number)
		}
	})
	for _, err := range []error{driver.ErrBusy, mssql.Error{Number: 3621, All: []mssql.Error{{Number: 3621}, {Number: 1205}}}} {
		require.True(t, sqlserver.Passes(err), "%v", err)
	}
	for _, err := range []error{nil, errors.New("another"), outmill.ErrInvalidTx, context.Canceled, sql.ErrTxDone} {
		require.False(t, sqlserver.Passes(err), "%v", err)
	}
}

// What the server says in a transaction that has ended is an ErrInvalidTx of the caller's, and never passes.
func TestEnded(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		mssql.Error{Number: 50902}, mssql.Error{Number: 3930},
		mssql.Error{Message: "Unexpected: the server does not have an active transaction"},
	} {
		require.ErrorIs(t, sqlserver.Ended(err), outmill.ErrInvalidTx)
		require.False(t, sqlserver.Passes(sqlserver.Ended(err)))
	}
	require.NotErrorIs(t, sqlserver.Ended(mssql.Error{Number: 1205}), outmill.ErrInvalidTx)
	require.NoError(t, sqlserver.Ended(nil))
}
