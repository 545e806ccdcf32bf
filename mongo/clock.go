package mongo

import (
	"context"
	"sync"
	"time"
)

// clockGood is how long an answer of the server's clock is relied on.
const clockGood = 10 * time.Second

// clock estimates the server's time: that of its last answer, and what has
// passed since it was asked by this machine's monotonic clock, which nobody
// sets. So it is not behind, and ahead by a round trip at most. It only chooses
// what is worth a look: updates ask the server's own, $$NOW.
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

// doubt has the server asked again before the next estimate.
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

// now is the server's time, about.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	if now, good := s.clock.estimate(); good {
		return now, nil
	}
	state, err := s.loadState(ctx)
	return state.Now, err
}
