package sqlkit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit/sqlkit"
)

func TestText(t *testing.T) {
	t.Parallel()

	t.Run("an empty text is NULL in a column", func(t *testing.T) {
		t.Parallel()
		require.Nil(t, sqlkit.OrNull(""))
		require.Equal(t, " ", sqlkit.OrNull(" "))

		value := "of the row before"
		require.NoError(t, sqlkit.Text(&value).Scan(nil))
		require.Empty(t, value)
		require.NoError(t, sqlkit.Text(&value).Scan("a"))
		require.Equal(t, "a", value)
		require.NoError(t, sqlkit.Text(&value).Scan([]byte("b")))
		require.Equal(t, "b", value)
		require.ErrorContains(t, sqlkit.Text(&value).Scan(1), "int")
	})
}
