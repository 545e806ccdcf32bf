package mongo

import (
	"context"
	"sync"
	"time"
)

// clockGood is how long an answer of the server's clock is used.
const clockGood = 10 * time.Second

// clock estimates the server's time. It adds, to the time in the server's last answer, the time
// that has passed since the request, by this machine's monotonic clock, which no adjustment
// moves. So the estimate is never behind the server, and at most one round trip ahead. It only
// selects candidates: each update asks the server's own clock, $$NOW.
type clock struct {
	mu     sync.Mutex
	server time.Time
	asked  time.Time
	good   bool
}

func (c *clock) set(server, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.asked, c.good = server, asked, true
}

// doubt makes the next estimate ask the server again.
func (c *clock) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.good = false
}

func (c *clock) estimate() (now time.Time, good bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.asked)
	return c.server.Add(passed), c.good && passed < clockGood
}

// now returns an estimate of the server's time.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	if now, good := s.clock.estimate(); good {
		return now, nil
	}
	state, err := s.loadState(ctx)
	return state.Now, err
}
