package dashboard

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// counter counts the records for all pages and streams together: many people who look cost the
// store as much as one.
type counter struct {
	store  outmill.Store
	config Config
	now    func() time.Time

	mu     sync.Mutex
	last   counts
	trails map[series]*trail
}

// counts are what one look at the store found.
type counts struct {
	rows   []outmill.TopicStats
	pauses []roles.PauseInfo
	// limit is where the counts ended.
	limit int
	// at is when the rows were counted; zero if that has never worked.
	at time.Time
	// err is why the last look has failed, in whole or in part; tried is when that was.
	err   error
	tried time.Time
}

// series is a line of the counts.
type series struct{ store, group, topic string }

func seriesOf(s outmill.TopicStats) series { return series{s.Store, s.Group, s.Topic} }

// maxTrails bounds the memory for trends: each takes about 5 kB.
const maxTrails = 1_000

func newCounter(store outmill.Store, config Config) *counter {
	c := &counter{store: store, config: config, now: time.Now, trails: map[series]*trail{}}
	c.last.limit = cmp.Or(config.CountLimit, 10_000)
	return c
}

// look returns counts that are as old as Config.Every at most. While one caller asks the store,
// the others wait for its answer.
func (c *counter) look(ctx context.Context) counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.tried.IsZero() && c.now().Sub(c.last.tried) < c.config.Every {
		return c.last
	}
	// The answer is for all, so it outlives the request that asked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Timeout)
	defer cancel()
	rows, limit, err := c.count(ctx)
	var pauses []roles.PauseInfo
	if role, ok := outmill.As[roles.Pauses](c.store); ok && err == nil {
		if pauses, err = role.Paused(ctx); isLack(err) {
			err = nil
		}
	}
	c.last.err, c.last.tried = err, c.now()
	if len(rows) > 0 || !storekit.NoneAnswered(err) {
		c.last.rows, c.last.pauses, c.last.limit, c.last.at = rows, pauses, limit, c.last.tried
		c.note()
	}
	return c.last
}

func (c *counter) count(ctx context.Context) (rows []outmill.TopicStats, limit int, err error) {
	if limit = c.config.CountLimit; limit == 0 {
		return storekit.QuickStats(ctx, c.store)
	}
	rows, err = c.store.Stats(ctx, limit)
	return rows, limit, err
}

// note adds the counts to the trends, and forgets those of topics that are gone.
func (c *counter) note() {
	there := make(map[series]bool, len(c.last.rows))
	for _, row := range c.last.rows {
		of := seriesOf(row)
		there[of] = true
		if c.trails[of] == nil && len(c.trails) >= maxTrails {
			continue
		}
		if c.trails[of] == nil {
			c.trails[of] = &trail{}
		}
		c.trails[of].add(pointOf(row, c.last.at, c.last.limit))
	}
	for of, t := range c.trails {
		if !there[of] {
			t.add(point{at: c.last.at})
		}
		if t.idle() {
			delete(c.trails, of)
		}
	}
}

// trendOf returns the trend of a line of the counts.
func (c *counter) trendOf(of series) []point {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.trails[of]; t != nil {
		return t.points()
	}
	return nil
}
