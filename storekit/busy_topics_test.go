package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestBusyTopics(t *testing.T) {
	t.Parallel()

	t.Run("Forget drops all notes", func(t *testing.T) {
		t.Parallel()
		var busy storekit.BusyTopics
		busy.Forget()
		busy.Note("readers", outmill.Topics{}, []string{"orders"})
		require.Equal(t, []string{"orders"}, busy.Topics("readers", outmill.Topics{}))
		busy.Forget()
		require.Nil(t, busy.Topics("readers", outmill.Topics{}))
	})
}
