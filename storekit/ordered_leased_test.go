package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestOrderedLeased(t *testing.T) {
	t.Parallel()

	t.Run("behind a record that was not leased no record of its key is returned", func(t *testing.T) {
		t.Parallel()
		keys := []string{"a", "b", "", "a", "b", "", "a"}
		for name, test := range map[string]struct {
			order  outmill.Order
			leased []bool
			want   []bool
		}{
			"all were leased": {outmill.OrderKey, []bool{true, true, true, true, true, true, true},
				[]bool{true, true, true, true, true, true, true}},
			"the first of a key was not": {outmill.OrderKey, []bool{false, true, true, true, true, true, true},
				[]bool{false, true, true, false, true, true, false}},
			"one in the middle was not": {outmill.OrderKey, []bool{true, true, true, false, true, true, true},
				[]bool{true, true, true, false, true, true, false}},
			"one without a key was not": {outmill.OrderKey, []bool{true, true, false, true, true, true, true},
				[]bool{true, true, false, true, true, true, true}},
			"one of a topic in order was not": {outmill.OrderTopic, []bool{true, true, false, true, true, true, true},
				[]bool{true, true, false, false, false, false, false}},
			"nothing of a topic in order broke": {outmill.OrderTopic, []bool{true, true, true, true, true, true, true},
				[]bool{true, true, true, true, true, true, true}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := storekit.LeasedInOrder(test.order, len(keys), func(i int) string { return keys[i] }, func(i int) bool { return test.leased[i] })
				require.Equal(t, test.want, got)
			})
		}
	})
}
