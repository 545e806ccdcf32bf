package mongo

import "time"

// Believe has the store take server for the server's time at asked.
func (s *Store) Believe(server, asked time.Time) { s.clock.set(server, asked) }

// Believed is the store's estimate of the server's time, and whether it relies
// on it.
func (s *Store) Believed() (time.Time, bool) { return s.clock.estimate() }

// ClockGood is how long the store relies on an answer of the server's clock.
const ClockGood = clockGood

// SetTurn sets how long a turn at a line lasts at first.
func SetTurn(s *Store, lasts time.Duration) { s.turnFor = lasts }

// SetBusyFor sets how long all claims are full before the change stream is closed.
func SetBusyFor(s *Store, d time.Duration) { s.busyFor = d }

// Listens tells whether the store's change stream is there.
func Listens(s *Store) bool {
	c := s.changes.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stands
}

// LookAgain forgets what the store remembers of lines, which goes by this process's
// clock: that does not pass where a test makes the database's time pass.
func (s *Store) LookAgain() {
	s.trails.mu.Lock()
	defer s.trails.mu.Unlock()
	s.trails.known = nil
}

// CollectionNames are the names of the collections of a store without a prefix of its own.
func CollectionNames() []string {
	names := make([]string, len(collectionNames))
	for i, name := range collectionNames {
		names[i] = DefaultPrefix + name
	}
	return names
}
