package memstore_test

import (
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

func (h harness) ReopenFair(topics ...string) outmill.Store {
	options := h.store.options
	options.FairTopics = topics
	return open(h.t, h.store.db, options)
}

// TestConformance_Turns runs all sentences with stores that serve turns in all topics.
func TestConformance_Turns(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			t.Helper()
			h := newHarness(t, options).(harness)
			return harness{t, h.ReopenFair("*").(*opened)}
		},
		Unsupported: map[string]string{"schema": noSchema},
	})
}
