package mongo

import "time"

// Believe has the store take server for the server's time at asked.
func (s *Store) Believe(server, asked time.Time) { s.clock.set(server, asked) }

// Believed is the store's estimate of the server's time, and whether it relies
// on it.
func (s *Store) Believed() (time.Time, bool) { return s.clock.estimate() }

// ClockGood is how long the store relies on an answer of the server's clock.
const ClockGood = clockGood
