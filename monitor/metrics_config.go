package monitor

import (
	"cmp"
	"time"

	"github.com/outmill/outmill/storekit"
)

// MetricsConfig are the settings of [Metrics]. The zero value is ready to use.
type MetricsConfig struct {
	// MaxSeries is how many pairs of group and topic have labels of their own, per store; the
	// gauges sum the others under the group and topic "other". It also bounds the label sets of
	// the publishers, and those of the handlers. 0 is 100.
	MaxSeries int
	// CountLimit is where the store stops counting the records of a group and topic: see
	// outmill.TopicStats. 0 is 10,000.
	CountLimit int
	// CacheFor is how long collections repeat the answer of a store, so that many scrapes cost
	// the database one query. 0 is 5 seconds, and for an answer that took more than 25 ms 200 times as
	// long as it took, at most a minute.
	CacheFor time.Duration
	// Timeout ends the query of a store that does not answer; 0 is 3 seconds.
	Timeout time.Duration

	// paced says that CacheFor is the default.
	paced bool
}

func (c MetricsConfig) withDefaults() MetricsConfig {
	c.MaxSeries = cmp.Or(c.MaxSeries, 100)
	c.paced = c.CacheFor == 0
	c.CacheFor = cmp.Or(c.CacheFor, 5*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 3*time.Second)
	return c
}

func (c MetricsConfig) check() error {
	for name, n := range map[string]int{"MaxSeries": c.MaxSeries, "CountLimit": c.CountLimit} {
		if n < 0 {
			return storekit.InvalidConfig("MetricsConfig.%s is %d: want 0 (the default) or more", name, n)
		}
	}
	for name, d := range map[string]time.Duration{"CacheFor": c.CacheFor, "Timeout": c.Timeout} {
		if d < 0 {
			return storekit.InvalidConfig("MetricsConfig.%s is %v: want 0 (the default) or more", name, d)
		}
	}
	return nil
}

// A count rests for restAfter times as long as it took, at most for maxRest, so that it costs the
// database about 0.5 % of a core, and less than 1 % if the counts are made with new connections.
const (
	restAfter = 200
	maxRest   = time.Minute
)

// keep returns how long collections repeat an answer that took that long.
func (c MetricsConfig) keep(took time.Duration) time.Duration {
	if !c.paced {
		return c.CacheFor
	}
	return max(c.CacheFor, min(restAfter*took, maxRest))
}
