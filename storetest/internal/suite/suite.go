package suite

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

const (
	// Retention is how long retaining stores of the suites keep processed records.
	Retention = 24 * time.Hour
	// DedupWindow is how long the stores of the suites remember dedup keys.
	DedupWindow = time.Hour
)

var list = flag.Bool("storetest.list", false, "list the sentences of the contract, and test none")

// Section is one part of a contract.
type Section struct {
	Name      string
	Sentences []Sentence
	// AnyMode says that the section acks nothing. Retention does not change it, so it runs only
	// in the first mode.
	AnyMode bool
	// Retained says that the section runs only if the store retains processed records.
	Retained bool
	// BothModes says that retained records change the section, so it always runs in both modes.
	BothModes bool
}

// Sentence is one promise of the contract and the check of it.
type Sentence struct {
	Name  string
	Check func(*Env)
}

// Mode is one setting of the store with which a suite runs.
type Mode struct {
	Name    string
	Options Options
}

// Modes returns the modes of all suites.
func Modes() []Mode {
	return []Mode{
		{"deleted on ack", Options{DedupWindow: DedupWindow}},
		{"retained", Options{DedupWindow: DedupWindow, Retain: Retention}},
	}
}

// Suite is a contract, and the stores that are tested by it.
type Suite struct {
	Sections    []Section
	New         func(t *testing.T, options Options) Harness
	Unsupported map[string]string
	// short says that long sentences are left out.
	short bool
}

// Run checks every sentence, in parallel, each with a store of its own.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if *list {
		s.list()
		return
	}
	if err := s.checkUnsupported(); err != nil {
		t.Fatal(err)
	}
	s.short = !All()
	for i, mode := range Modes() {
		t.Run(mode.Name, func(t *testing.T) {
			t.Parallel()
			for _, section := range s.Sections {
				if section.AnyMode && i > 0 || section.Retained && mode.Options.Retain == 0 {
					continue
				}
				t.Run(section.Name, func(t *testing.T) {
					t.Parallel()
					general := i > 0 && !section.BothModes && !section.Retained
					if why := amountOf(t.Name()).elsewhere(general); why != "" {
						t.Skip("skipped: " + why)
					}
					s.Check(t, section, mode)
				})
			}
		})
	}
}

// amount is how much of a suite a test runs.
type amount struct{ all, brief, race, variant bool }

func amountOf(test string) amount {
	test, _, _ = strings.Cut(test, "/")
	return amount{All(), os.Getenv(EnvAll) == brief, UnderRace, strings.HasSuffix(test, "_Variant")}
}

// elsewhere says why a section does not run here. general says that it is a section of the second mode which the mode does not change.
// All tests run each section in each mode once. One mode is enough under the race detector, because the calls take the same ways in both,
// and over a store that is configured in another way, a variant. A brief run has the variants, and what the one under the race detector has
// left out.
func (a amount) elsewhere(general bool) string {
	switch {
	case a.brief && !a.variant:
		if !general {
			return "sentences that run under the race detector"
		}
	case !general:
	case !a.all:
		return "sentences that hold in the other mode; " + EnvAll + "=1 has them run"
	case a.variant:
		return "sentences that hold in the other mode, and run over the usual configuration"
	case a.race:
		return "sentences that hold in the other mode, and run without the race detector"
	}
	return ""
}

// list prints the sentences in the form of Unsupported.
func (s Suite) list() {
	for _, section := range s.Sections {
		for _, sentence := range section.Sentences {
			fmt.Println(section.Name + ": " + sentence.Name)
		}
	}
}

// Check checks the sentences of one section.
func (s Suite) Check(t *testing.T, section Section, mode Mode) {
	t.Helper()
	if reason, ok := s.Unsupported[section.Name]; ok {
		t.Skip("not supported by this store: " + reason)
	}
	for _, sentence := range section.Sentences {
		t.Run(sentence.Name, func(t *testing.T) {
			t.Parallel()
			if reason, ok := s.Unsupported[section.Name+": "+sentence.Name]; ok {
				t.Skip("not supported by this store: " + reason)
			}
			// Without this, one panic of a broken store would end all sentences.
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("panic: %v\n%s", r, debug.Stack())
				}
			}()
			e := NewEnv(t, s.New, mode.Options)
			e.short = s.short
			sentence.Check(e)
		})
	}
}

// checkUnsupported reports names that the suite does not have, and names without a reason.
func (s Suite) checkUnsupported() error {
	var errs []error
	known := map[string]bool{}
	for _, section := range s.Sections {
		known[section.Name] = true
		for _, sentence := range section.Sentences {
			known[section.Name+": "+sentence.Name] = true
		}
	}
	for name, reason := range s.Unsupported {
		if !known[name] {
			errs = append(errs, fmt.Errorf("storetest: Unsupported names %q: no section or sentence has that name", name))
		}
		if reason == "" {
			errs = append(errs, fmt.Errorf("storetest: Unsupported names %q without a reason", name))
		}
	}
	return errors.Join(errs...)
}
