package testenv

import (
	"sync"
	"testing"
)

// Shelf is a pool of named resources that tests reuse, such as sets of tables. Making a set
// takes longer than checking most sentences of the contract, and each session must plan its
// statements again for new tables. The zero value is empty. Its methods may be called
// concurrently.
type Shelf struct {
	mu      sync.Mutex
	names   []string
	changed map[string]bool
}

// Take removes and returns a name. It reports false if the pool is empty.
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

// Return puts the resource back into the pool when the test ends, after calling empty. This
// happens after the cleanups that the test registers later. After a test that failed or
// called Changed, the resource does not return.
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

// Changed records that the resource must not be used again.
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
