package routing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/routing"
)

func table() *routing.Table {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	return &routing.Table{Registrations: []routing.Registration{
		{Group: "later by name", Topics: outmill.Topics{Include: []string{"orders"}}, SeenAt: late},
		{Group: "all", Topics: outmill.Topics{Exclude: []string{"secret*"}}, SeenAt: early},
		{Group: "all", Topics: outmill.Topics{Include: []string{"orders"}}, SeenAt: late},
	}}
}

func Test_a_topic_has_each_of_its_groups_once_sorted(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"all", "later by name"}, table().Of("orders"))
	require.Equal(t, []string{"all"}, table().Of("invoices"))
	require.Empty(t, table().Of("secrets"))
}

func Test_waiting_records_go_to_the_first_that_registered(t *testing.T) {
	t.Parallel()
	group, found := table().First("orders")
	require.True(t, found)
	require.Equal(t, "later by name", group)
	_, found = table().First("secrets")
	require.False(t, found)
}

func Test_a_group_is_described_once_with_all_its_selections_and_when_it_was_last_seen(t *testing.T) {
	t.Parallel()
	infos := table().Infos()
	require.Len(t, infos, 2)
	require.Equal(t, "all", infos[0].Group)
	require.Len(t, infos[0].Registrations, 2)
	require.Equal(t, time.Unix(2, 0), infos[0].SeenAt)
}
