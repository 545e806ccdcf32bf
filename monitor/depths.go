package monitor

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// other is the group and topic of the series that sums those without labels of their own.
const other = "other"

// depths counts the records of one store, and repeats its answer for a while.
type depths struct {
	store  MeteredStore
	config MetricsConfig

	mu    sync.Mutex
	last  answerOfStore
	shown map[series]bool // The series of the last answer keep their labels while they exist.
}

type series struct{ store, group, topic string }

type answerOfStore struct {
	rows []outmill.TopicStats
	// up says of each store whether it answered: of the counted one, and if that is made of several, of
	// those that failed or have rows.
	up map[string]bool
	at time.Time
	// keep is how long collections repeat the answer.
	keep time.Duration
}

// ask outlives the collection that started the query, so that a scrape that hangs up does not
// make the store look down to others.
func (d *depths) ask(ctx context.Context) answerOfStore {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.last.at.IsZero() && time.Since(d.last.at) < d.last.keep {
		return d.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.config.Timeout)
	defer cancel()
	began := time.Now()
	stats, err := d.store.Stats(ctx, d.config.CountLimit)
	answered := !storekit.NoneAnswered(err)
	d.last = answerOfStore{up: map[string]bool{}, at: time.Now(), keep: d.config.CacheFor}
	if answered {
		d.last.rows = d.bound(stats)
		d.last.keep = d.config.keep(time.Since(began))
	}
	for _, row := range d.last.rows {
		d.last.up[row.Store] = true
	}
	d.last.up[d.store.Name()] = answered
	d.noteDown(err)
	return d.last
}

// noteDown notes which of several stores failed, up to MaxSeries.
func (d *depths) noteDown(err error) {
	var partial *storekit.PartialError
	if !errors.As(err, &partial) {
		return
	}
	for i, name := range partial.Stores() {
		if i == d.config.MaxSeries {
			return
		}
		d.last.up[name] = false
	}
}

// bound gives the first MaxSeries series labels of their own, and sums the rest.
func (d *depths) bound(stats []outmill.TopicStats) []outmill.TopicStats {
	shown := d.admit(stats)
	d.shown = shown
	rows := make([]outmill.TopicStats, 0, len(shown)+1)
	rest := outmill.TopicStats{Store: d.store.Name(), Group: other, Topic: other}
	summed := false
	for _, row := range stats {
		if shown[d.seriesOf(row)] {
			row.Store = d.seriesOf(row).store
			rows = append(rows, row)
			continue
		}
		rest, summed = sum(rest, row), true
	}
	if summed {
		rows = append(rows, rest)
	}
	return rows
}

// admit prefers the series that were there before, so that a series does not come and go.
func (d *depths) admit(stats []outmill.TopicStats) map[series]bool {
	shown := map[series]bool{}
	for _, before := range []bool{true, false} {
		for _, row := range stats {
			s := d.seriesOf(row)
			isRest := s.group == other && s.topic == other
			if !isRest && d.shown[s] == before && len(shown) < d.config.MaxSeries {
				shown[s] = true
			}
		}
	}
	return shown
}

func (d *depths) seriesOf(row outmill.TopicStats) series {
	return series{cmp.Or(row.Store, d.store.Name()), row.Group, row.Topic}
}

func sum(a, b outmill.TopicStats) outmill.TopicStats {
	a.Pending += b.Pending
	a.Delayed += b.Delayed
	a.Leased += b.Leased
	a.Processed += b.Processed
	a.Dead += b.Dead
	if !b.OldestDue.IsZero() && (a.OldestDue.IsZero() || b.OldestDue.Before(a.OldestDue)) {
		a.OldestDue = b.OldestDue
	}
	return a
}
