//go:build stress

package allstores

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

func TestStress(t *testing.T) {
	// It runs the suite several times in parallel over one database: STRESS_TEST_COUNT times,
	// 10 by default.
	t.Run("Watermill's stress suite for pubsubs passes", func(t *testing.T) {
		for name, open := range stores {
			for _, s := range suites() {
				t.Run("on "+name+", "+s.name, func(t *testing.T) {
					s.run(t, open, tests.TestPubSubStressTest)
				})
			}
		}
	})
}
