package storekit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func table() *storekit.RoutingTable {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	return &storekit.RoutingTable{Registrations: []storekit.StoredRegistration{
		{Group: "later by name", Topics: outmill.Topics{Include: []string{"orders"}}, SeenAt: late},
		{Group: "all", Topics: outmill.Topics{Exclude: []string{"secret*"}}, SeenAt: early},
		{Group: "all", Topics: outmill.Topics{Include: []string{"orders"}}, SeenAt: late},
	}}
}

func TestRouting(t *testing.T) {
	t.Parallel()

	t.Run("a topic has each of its groups once sorted", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"all", "later by name"}, table().Of("orders"))
		require.Equal(t, []string{"all"}, table().Of("invoices"))
		require.Empty(t, table().Of("secrets"))
	})

	t.Run("waiting records go to the first that registered", func(t *testing.T) {
		t.Parallel()
		first, found := table().First("orders")
		require.True(t, found)
		require.Equal(t, "later by name", first.Group)
		require.Equal(t, []string{"orders"}, first.Topics.Include)
		_, found = table().First("secrets")
		require.False(t, found)
	})

	t.Run("a group is described once with all its selections and when it was last seen", func(t *testing.T) {
		t.Parallel()
		infos := table().Infos(nil, nil)
		require.Len(t, infos, 2)
		require.Equal(t, "all", infos[0].Group)
		require.Len(t, infos[0].Registrations, 2)
		require.Equal(t, time.Unix(2, 0), infos[0].SeenAt)
	})

	t.Run("a group is described with its workers the one seen last first", func(t *testing.T) {
		t.Parallel()
		at := func(second int64, name string) storekit.StoredWorker {
			return storekit.StoredWorker{Group: "all", Name: name, SeenAt: time.Unix(second, 0)}
		}
		infos := table().Infos([]storekit.StoredWorker{at(1, "old"), at(2, "b"), at(2, "a"), {Group: "gone", Name: "w"}}, nil)
		require.Len(t, infos, 2)
		var names []string
		for _, w := range infos[0].Workers {
			names = append(names, w.Name)
		}
		require.Equal(t, []string{"a", "b", "old"}, names)
		require.Empty(t, infos[1].Workers)
	})

	t.Run("a group whose registrations have ended is described without any", func(t *testing.T) {
		t.Parallel()
		end := time.Unix(3, 0)
		infos := table().Infos(nil, []storekit.EndedGroup{{Group: "b", At: end}, {Group: "all", At: end}})
		require.Len(t, infos, 3)
		require.Zero(t, infos[0].EndedAt, "it has a registration")
		require.Equal(t, outmill.GroupInfo{Group: "b", EndedAt: end}, infos[1])
	})

	t.Run("topics that a group does not read are unread whatever other groups read", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"invoices"}, table().Unread("later by name", []string{"orders", "invoices"}))
		require.Equal(t, []string{"secret1"}, table().Unread("all", []string{"orders", "secret1"}))
		require.Equal(t, []string{"orders"}, table().Unread("nobody", []string{"orders"}))
	})

	t.Run("no more than the limit is swept and what was done before an error is counted", func(t *testing.T) {
		t.Parallel()
		left := map[string]int{"a": 3, "b": 4, "c": 5}
		broken := errors.New("broken")
		endings := storekit.RegistrationExpiry{
			End:   func(context.Context, int) (int, error) { return 2, nil },
			Noted: func(context.Context, int) ([]string, error) { return []string{"a", "b", "c"}, nil },
			Sweep: func(_ context.Context, group string, limit int) (int, error) {
				if group == "c" {
					return 1, broken
				}
				n := min(limit, left[group])
				left[group] -= n
				return n, nil
			},
		}
		registrations, records, err := endings.Expire(t.Context(), 5)
		require.NoError(t, err)
		require.Equal(t, []int{2, 5}, []int{registrations, records})
		_, records, err = endings.Expire(t.Context(), 5)
		require.ErrorIs(t, err, broken)
		require.Equal(t, 3, records)
	})
}
