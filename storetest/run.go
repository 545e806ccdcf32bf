package storetest

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	retention   = 24 * time.Hour
	dedupWindow = time.Hour
)

// section is one part of the contract.
type section struct {
	name      string
	sentences []sentence
	// anyMode: nothing in it is acked, so it is the same whether the store
	// retains or not, and runs in the first mode only.
	anyMode bool
	// retained: it runs only where the store retains.
	retained bool
	// bothModes: what is retained shows in it, so that it runs in both modes also
	// where not all tests do.
	bothModes bool
	// joins: it runs only where the store is a storekit.Joins.
	joins bool
}

// mode is one setting of the store with which the suite runs.
type mode struct {
	name    string
	options Options
}

func modes() []mode {
	return []mode{
		{"deleted on ack", Options{DedupWindow: dedupWindow}},
		{"retained", Options{DedupWindow: dedupWindow, Retain: retention}},
	}
}

// sentence is one promise of the contract and the check of it.
type sentence struct {
	name  string
	check func(*env)
}

func sections() []section {
	return append(queueSections(), joinSections()...)
}

func queueSections() []section {
	return []section{
		{name: "append", sentences: appendSentences(), anyMode: true},
		{name: "limits", sentences: limitSentences(), anyMode: true},
		{name: "transactions", sentences: transactionSentences(), anyMode: true},
		{name: "groups", sentences: groupSentences()},
		{name: "worker names", sentences: workerNameSentences(), anyMode: true},
		{name: "registrations", sentences: registrationSentences()},
		{name: "topics", sentences: topicSentences(), anyMode: true},
		{name: "dedup", sentences: dedupSentences()},
		{name: "time", sentences: timeSentences()},
		{name: "claim", sentences: claimSentences()},
		{name: "settle", sentences: settleSentences()},
		{name: "suspects", sentences: suspectSentences()},
		{name: "reap", sentences: reapSentences()},
		{name: "order", sentences: orderSentences()},
		{name: "park", sentences: parkSentences()},
		{name: "topic order", sentences: topicOrderSentences()},
		{name: "inspect", sentences: inspectSentences(), bothModes: true},
		{name: "janitor", sentences: janitorSentences(), bothModes: true},
		{name: "wake", sentences: wakeSentences(), anyMode: true},
		{name: "schema", sentences: schemaSentences(), anyMode: true},
		{name: "calls", sentences: callSentences(), anyMode: true},
		{name: "workers", sentences: workerSentences()},
		{name: "model", sentences: modelSentences()},
	}
}

// Run checks every sentence of the contract against the harness's store, in
// parallel, each with a store of its own.
func Run(t *testing.T, h Harness) {
	if h.New == nil || h.Reopen == nil || h.Elapse == nil || h.Begin == nil {
		t.Fatal("storetest: Harness wants New, Reopen, Elapse and Begin")
	}
	if err := checkUnsupported(h.Unsupported); err != nil {
		t.Fatal(err)
	}
	runSections(t, h, sections())
}

func runSections(t *testing.T, h Harness, list []section) {
	t.Helper()
	for i, mode := range modes() {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			for _, section := range list {
				if section.anyMode && i > 0 || section.retained && mode.options.Retain == 0 {
					continue
				}
				t.Run(section.name, func(t *testing.T) {
					t.Parallel()
					if i > 0 && !section.bothModes && !section.retained && !all() {
						t.Skip("skipped: sentences that hold in the other mode, in the mode " + mode.name + "; " + envAll + "=1 has them run")
					}
					section.run(t, h, mode.options)
				})
			}
		})
	}
}

func (s section) run(t *testing.T, h Harness, options Options) {
	if reason, ok := h.Unsupported[s.name]; ok {
		t.Skip("not supported by this store: " + reason)
	}
	if s.joins {
		if _, ok := outmill.As[storekit.Joins](h.New(t, options)); !ok {
			t.Skip("the store is no storekit.Joins")
		}
	}
	for _, sentence := range s.sentences {
		t.Run(sentence.name, func(t *testing.T) {
			t.Parallel()
			if reason, ok := h.Unsupported[s.name+": "+sentence.name]; ok {
				t.Skip("not supported by this store: " + reason)
			}
			// One panic of a broken store would end all sentences.
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("panic: %v\n%s", r, debug.Stack())
				}
			}()
			sentence.check(newEnv(t, h, options))
		})
	}
}

// checkUnsupported reports names that the suite does not have, or no longer,
// and those without a reason.
func checkUnsupported(unsupported map[string]string) error {
	var errs []error
	known := map[string]bool{}
	for _, section := range slices.Concat(sections(), txSections(), sagaSections()) {
		known[section.name] = true
		for _, sentence := range section.sentences {
			known[section.name+": "+sentence.name] = true
		}
	}
	for name, reason := range unsupported {
		if !known[name] {
			errs = append(errs, fmt.Errorf("storetest: Harness.Unsupported names %q: no section or sentence has that name", name))
		}
		if reason == "" {
			errs = append(errs, fmt.Errorf("storetest: Harness.Unsupported names %q without a reason", name))
		}
	}
	return errors.Join(errs...)
}
