package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestJoinText(t *testing.T) {
	t.Parallel()

	t.Run("the joins of a record come back from their text", func(t *testing.T) {
		t.Parallel()
		for _, joins := range [][]outmill.JoinID{nil, {outmill.NewJoinID()}, {outmill.NewJoinID(), outmill.NewJoinID()}} {
			read, err := storekit.ParseJoins(storekit.JoinsText(joins))
			require.NoError(t, err)
			require.Equal(t, joins, read)
		}
		_, err := storekit.ParseJoins("x")
		require.ErrorContains(t, err, "joins")
	})
}
