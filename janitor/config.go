package janitor

import (
	"time"

	"github.com/outmill/outmill/storekit"
)

// maxBatch limits the number of records in one statement of a store.
const maxBatch = 10_000

// Config has the settings of a Janitor. The zero value is ready to use.
type Config struct {
	// Interval is the time between two rounds of Run. A round that is not done after this
	// time ends, and the next one continues. Default 60 s.
	Interval time.Duration

	// BatchSize is the largest number of records of one call of the store, 1 to 10,000.
	// Default 1,000. Larger batches make other writers wait longer, above all on SQLite, which
	// has one writer at a time.
	BatchSize int

	// Share is the part of the time in which the janitor works while there is much to do:
	// above 0, at most 1. After a batch that took 10 ms a janitor with a share of 0.2 pauses
	// for 40 ms. No pause is longer than 30 s. Default 0.2.
	Share float64

	// OnRound is called at the end of each round, with what it did, for metrics. The error is
	// that of the round; the janitor logs it too. Several goroutines may call OnRound if
	// RunOnce is called more than once at a time. It must return quickly and must not call
	// Close. A panic in OnRound is logged.
	OnRound func(report Report, err error)

	// OnError is called with each error that Run survives and otherwise only logs. Several
	// goroutines may call OnError concurrently. It must return quickly and must not call
	// Close. A panic in OnError is logged.
	OnError func(err error)
}

func (c *Config) setDefaults() {
	if c.Interval == 0 {
		c.Interval = time.Minute
	}
	if c.BatchSize == 0 {
		c.BatchSize = 1000
	}
	if c.Share == 0 {
		c.Share = 0.2
	}
}

// Validate returns an error for every invalid setting, joined. Each is an
// outmill.ErrInvalidConfig. New calls it.
func (c Config) Validate() error {
	c.setDefaults()
	check := storekit.CheckConfig("janitor.Config")
	check.Refuse(c.Interval < 0, "Interval is %s: want a duration above 0", c.Interval)
	check.Refuse(c.BatchSize < 1 || c.BatchSize > maxBatch, "BatchSize is %d: want 1 to %d", c.BatchSize, maxBatch)
	check.Refuse(!(c.Share > 0 && c.Share <= 1), "Share is %v: want a number above 0, at most 1", c.Share)
	return check.Err()
}
