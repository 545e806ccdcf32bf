package storekit_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestDueTopics(t *testing.T) {
	t.Parallel()
	t.Run("looks again after records found a group", func(t *testing.T) {
		t.Parallel()
		var asked []outmill.Topics
		looks := 0
		due, err := storekit.DueTopics(func() (due, unrouted []string, err error) {
			if looks++; looks == 1 {
				return []string{"bills"}, []string{"orders"}, nil
			}
			return []string{"bills", "orders"}, nil, nil
		}, func(topics outmill.Topics) (int, error) {
			asked = append(asked, topics)
			return 3, nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"bills", "orders"}, due)
		require.Equal(t, []outmill.Topics{{Include: []string{outmill.Exact("orders")}}}, asked)
	})
	t.Run("returns the due topics if no group adopts the others", func(t *testing.T) {
		t.Parallel()
		due, err := storekit.DueTopics(
			func() (due, unrouted []string, err error) { return []string{"bills"}, []string{"orders"}, nil },
			func(outmill.Topics) (int, error) { return 0, nil })
		require.NoError(t, err)
		require.Equal(t, []string{"bills"}, due)
	})
	t.Run("returns no topics with an error", func(t *testing.T) {
		t.Parallel()
		errGone := errors.New("gone")
		due, err := storekit.DueTopics(
			func() (due, unrouted []string, err error) { return []string{"bills"}, []string{"orders"}, nil },
			func(outmill.Topics) (int, error) { return 0, errGone })
		require.ErrorIs(t, err, errGone)
		require.Empty(t, due)
	})
}

func TestServeDue(t *testing.T) {
	t.Parallel()
	// claims is a store that serves a given number of times, and records its calls.
	type claims struct {
		turns  storekit.TopicRotation
		busy   storekit.BusyTopics
		looks  int
		served [][]string
	}
	serve := func(c *claims, claimed []int, again ...bool) error {
		round := 0
		return storekit.ServeDue(&c.turns, &c.busy, outmill.ClaimRequest{Group: "g"}, func() ([]string, error) {
			if c.looks++; c.looks > 5 {
				return nil, nil
			}
			return []string{"bills", "orders"}, nil
		}, func(topics []string) (int, bool, error) {
			c.served = append(c.served, topics)
			round++
			return claimed[round-1], len(again) >= round && again[round-1], nil
		})
	}
	t.Run("begins with the topics that were busy a moment ago, those in turn", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var c claims
			require.NoError(t, serve(&c, []int{1}))
			require.NoError(t, serve(&c, []int{1}))
			require.Equal(t, 1, c.looks)
			require.Equal(t, [][]string{{"bills", "orders"}, {"orders", "bills"}}, c.served)
		})
	})
	t.Run("searches for other topics if the busy ones have no records", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var c claims
			require.NoError(t, serve(&c, []int{1}))
			require.NoError(t, serve(&c, []int{0, 2}))
			require.Equal(t, 2, c.looks)
			require.Len(t, c.served, 3)
		})
	})
	t.Run("serves again where much was passed over, and else ends", func(t *testing.T) {
		t.Parallel()
		var c claims
		require.NoError(t, serve(&c, []int{0, 0, 0}, true, true))
		require.Equal(t, 3, c.looks)
	})
	t.Run("ends where nothing is due", func(t *testing.T) {
		t.Parallel()
		c := claims{looks: 5}
		require.NoError(t, serve(&c, nil))
		require.Empty(t, c.served)
	})
}
