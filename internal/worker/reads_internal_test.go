package worker

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestMerged(t *testing.T) {
	t.Parallel()
	reading := func(order outmill.Order, include ...string) outmill.Reading {
		return outmill.Reading{Topics: outmill.Topics{Include: include}, Order: order}
	}
	all := outmill.Reading{Order: outmill.OrderKey}
	except := outmill.Reading{Topics: outmill.Topics{Exclude: []string{"a"}}, Order: outmill.OrderKey}

	t.Run("names that are read in one way are one reading, and each selection is there once", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []outmill.Reading{reading(outmill.OrderKey, "a", "b", "c"), reading(outmill.OrderNone, "a"), all, except},
			merged([]outmill.Reading{reading(outmill.OrderKey, "c", "b"), reading(outmill.OrderNone, "a"), all, except,
				reading(outmill.OrderKey, "b", "a"), all, except}))
	})

	t.Run("the readings never have more entries than a registration takes, and no list becomes all topics", func(t *testing.T) {
		t.Parallel()
		var names []string
		for i := range storekit.MaxReads + 10 {
			names = append(names, fmt.Sprintf("topic %02d", i))
		}
		for first := range storekit.MaxReads + 5 {
			got := merged([]outmill.Reading{reading(outmill.OrderKey, names[:first+1]...), reading(outmill.OrderNone, names...), all})
			entries := 0
			for i, r := range got {
				entries += max(1, len(r.Topics.Include))
				require.Equal(t, i == 2, len(r.Topics.Include) == 0, "%d: %v", first, r)
			}
			require.LessOrEqual(t, entries, storekit.MaxReads)
			require.Equal(t, names[0], got[0].Topics.Include[0])
		}
	})
}
