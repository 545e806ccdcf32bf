package storekit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outmill/outmill"
)

// UnknownParameterError says that a parameter in the URL of a store is neither the store's nor
// its driver's, most likely because it is misspelt. It is an [outmill.ErrInvalidConfig].
type UnknownParameterError struct {
	// Parameter is the name in the URL.
	Parameter string
	// Nearest is the parameter of the store that is most like it; "" if none is.
	Nearest string
	// Known are the parameters of the store, sorted.
	Known []string
}

func (e *UnknownParameterError) Error() string {
	nearest := ""
	if e.Nearest != "" {
		nearest = fmt.Sprintf(" do you mean %s?", e.Nearest)
	}
	return fmt.Sprintf("%s: the URL has the parameter %.60q, which neither the store nor its driver has:%s the store has %s",
		outmill.ErrInvalidConfig, e.Parameter, nearest, strings.Join(e.Known, ", "))
}

// Is makes errors.Is(err, outmill.ErrInvalidConfig) true.
func (e *UnknownParameterError) Is(target error) bool { return target == outmill.ErrInvalidConfig }

// workerParameters are those of outmill.WorkerDefaults, which outmill.Open takes for every store.
var workerParameters = []string{"batch_size", "lease", "max_attempts"}

// CheckRest refuses parameters that were not taken with an [*UnknownParameterError], which [URLParameters.Err]
// returns: those that are nearly a parameter of the store, because a driver or a server may ignore them
// silently, and those for which drivers is false. drivers reports whether the driver may have a parameter of that
// name. Call it after the settings of the store were taken.
func (p *URLParameters) CheckRest(drivers func(name string) bool) {
	known := slices.Concat(p.taken, workerParameters)
	slices.Sort(known)
	names := make([]string, 0, len(p.query))
	for name := range p.query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		nearest, distance := nearestOf(name, known)
		if distance <= slips(nearest) || !drivers(name) {
			if distance > max(len(nearest)/3, 1) {
				nearest = ""
			}
			p.errs = append(p.errs, &UnknownParameterError{Parameter: name, Nearest: nearest, Known: known})
		}
	}
}

// WithoutUnderscore is for [URLParameters.CheckRest]: the names of the driver's parameters have no
// underscore, as those of the stores have.
func WithoutUnderscore(name string) bool { return !strings.Contains(name, "_") }

// slips is how many letters of a name may be wrong in a name that is meant to be the same.
func slips(name string) int {
	if len(name) <= 5 {
		return 1
	}
	return 2
}

// nearestOf returns the name that is most like text, and how many letters differ.
func nearestOf(text string, names []string) (nearest string, distance int) {
	for i, name := range names {
		if d := letters(plain(text), plain(name)); i == 0 || d < distance {
			nearest, distance = name, d
		}
	}
	return nearest, distance
}

// plain removes what the style of a name adds, so that fairTopics is fair_topics.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// letters returns how many letters must be inserted, removed, replaced or swapped with the next to make b of a.
func letters(a, b string) int {
	if len(a) > 2*len(b)+2 {
		// A name of any length comes from a user.
		return len(a) - len(b)
	}
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
