//go:build stress

package allstores

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

// Test_Watermills_stress_suite_for_pubsubs_passes runs the suite several times
// in parallel over one database; STRESS_TEST_COUNT says how many, 10 unless
// set.
func Test_Watermills_stress_suite_for_pubsubs_passes(t *testing.T) {
	for name, open := range stores {
		for _, s := range suites() {
			t.Run("on "+name+", "+s.name, func(t *testing.T) {
				s.run(t, open, tests.TestPubSubStressTest)
			})
		}
	}
}
