package testenv

import (
	"sync"
	"testing"
)

// Shelf has what tests have used, by name, for those to come: a set of tables,
// which takes longer to make than most sentences of the contract take, and for
// which each session plans its statements again. The zero value is empty. Its
// methods may be called concurrently.
type Shelf struct {
	mu      sync.Mutex
	names   []string
	changed map[string]bool
}

// Take returns a name, and whether there was one.
func (s *Shelf) Take() (name string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.names)
	if n == 0 {
		return "", false
	}
	name = s.names[n-1]
	s.names = s.names[:n-1]
	return name, true
}

// Return empties it when the test ends, after what the test has registered later
// itself, and puts it back. It stays away after a test that failed, or changed it.
func (s *Shelf) Return(tb testing.TB, name string, empty func()) {
	tb.Cleanup(func() {
		if tb.Failed() || s.isChanged(name) {
			return
		}
		empty()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.names = append(s.names, name)
	})
}

// Changed notes that it is not to be used again.
func (s *Shelf) Changed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = map[string]bool{}
	}
	s.changed[name] = true
}

func (s *Shelf) isChanged(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed[name]
}
