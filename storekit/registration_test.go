package storekit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func Test_a_registration_of_the_default_group_for_all_topics_needs_nothing(t *testing.T) {
	t.Parallel()
	require.NoError(t, storekit.CheckRegistrations([]outmill.Registration{{}}))
	require.NoError(t, storekit.CheckRegistrations([]outmill.Registration{{Group: "g", Worker: strings.Repeat("w", 255), TTL: time.Nanosecond}}))
}

func Test_a_registration_reports_all_that_makes_no_sense(t *testing.T) {
	t.Parallel()
	err := storekit.CheckRegistrations([]outmill.Registration{{Group: " g", Worker: "w\n ", TTL: -time.Second, Topics: outmill.Topics{Exclude: []string{""}}}})
	require.Len(t, joined(err), 4)
	require.ErrorIs(t, err, outmill.ErrInvalidRecord)
	require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	for _, part := range []string{"group", "topic pattern", "worker begins or ends with a blank: trim it", "Registration.TTL is -1s"} {
		require.ErrorContains(t, err, part)
	}
}

func Test_a_workers_name_has_255_characters_at_most(t *testing.T) {
	t.Parallel()
	var refused *outmill.InvalidRecordError
	require.ErrorAs(t, storekit.CheckWorker(strings.Repeat("w", 256)), &refused)
	require.Equal(t, "worker", refused.Field)
	require.NoError(t, storekit.CheckWorker(""))
}
