package storetest

import (
	"testing"
	"time"
)

const (
	retention   = 24 * time.Hour
	dedupWindow = time.Hour
)

// section is one part of the contract.
type section struct {
	name      string
	sentences []sentence
}

// sentence is one promise of the contract and the check of it.
type sentence struct {
	name  string
	check func(*env)
}

func sections() []section {
	return []section{
		{"append", appendSentences()},
		{"limits", limitSentences()},
		{"transactions", transactionSentences()},
		{"groups", groupSentences()},
		{"topics", topicSentences()},
		{"dedup", dedupSentences()},
		{"time", timeSentences()},
		{"claim", claimSentences()},
		{"settle", settleSentences()},
		{"suspects", suspectSentences()},
		{"reap", reapSentences()},
		{"order", orderSentences()},
		{"park", parkSentences()},
		{"topic order", topicOrderSentences()},
		{"inspect", inspectSentences()},
		{"janitor", janitorSentences()},
		{"wake", wakeSentences()},
		{"schema", schemaSentences()},
		{"calls", callSentences()},
		{"workers", workerSentences()},
		{"model", modelSentences()},
	}
}

// Run checks every sentence of the contract against the harness's store, in
// parallel, each with a store of its own.
func Run(t *testing.T, h Harness) {
	if h.New == nil || h.Reopen == nil || h.Elapse == nil || h.Begin == nil {
		t.Fatal("storetest: Harness wants New, Reopen, Elapse and Begin")
	}
	checkUnsupported(t, h.Unsupported)
	runSections(t, h, sections())
}

func runSections(t *testing.T, h Harness, sections []section) {
	for _, mode := range []struct {
		name    string
		options Options
	}{
		{"deleted on ack", Options{DedupWindow: dedupWindow}},
		{"retained", Options{DedupWindow: dedupWindow, Retain: retention}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			for _, section := range sections {
				t.Run(section.name, func(t *testing.T) {
					t.Parallel()
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
	for _, sentence := range s.sentences {
		t.Run(sentence.name, func(t *testing.T) {
			t.Parallel()
			if reason, ok := h.Unsupported[s.name+": "+sentence.name]; ok {
				t.Skip("not supported by this store: " + reason)
			}
			sentence.check(newEnv(t, h, options))
		})
	}
}

func checkUnsupported(t *testing.T, unsupported map[string]string) {
	known := map[string]bool{}
	for _, section := range sections() {
		known[section.name] = true
		for _, sentence := range section.sentences {
			known[section.name+": "+sentence.name] = true
		}
	}
	for name, reason := range unsupported {
		if !known[name] {
			t.Errorf("storetest: Harness.Unsupported names %q: no section or sentence has that name", name)
		}
		if reason == "" {
			t.Errorf("storetest: Harness.Unsupported names %q without a reason", name)
		}
	}
}
