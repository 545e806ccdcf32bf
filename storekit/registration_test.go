package storekit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestRegistration(t *testing.T) {
	t.Parallel()

	t.Run("a registration of the default group for all topics needs nothing", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, storekit.CheckRegistrations([]outmill.Registration{{}}))
		require.NoError(t, storekit.CheckRegistrations([]outmill.Registration{{Group: "g", Worker: strings.Repeat("w", 255),
			TTL: time.Nanosecond}}))
	})

	t.Run("a registration reports all that makes no sense", func(t *testing.T) {
		t.Parallel()
		err := storekit.CheckRegistrations([]outmill.Registration{{Group: " g", Worker: "w\n ", TTL: -time.Second,
			Topics: outmill.Topics{Exclude: []string{""}}}})
		require.Len(t, joined(err), 4)
		require.ErrorIs(t, err, outmill.ErrInvalidRecord)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		for _, part := range []string{"group", "topic pattern", "worker begins or ends with a blank: trim it", "Registration.TTL is -1s"} {
			require.ErrorContains(t, err, part)
		}
	})

	t.Run("a workers name has 255 characters at most", func(t *testing.T) {
		t.Parallel()
		var refused *outmill.InvalidRecordError
		require.ErrorAs(t, storekit.CheckWorker(strings.Repeat("w", 256)), &refused)
		require.Equal(t, "worker", refused.Field)
		require.NoError(t, storekit.CheckWorker(""))
	})
}
