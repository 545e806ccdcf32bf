package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outmill/outmill/engine/driver"
)

// An answer that a store rests stands while a driver.Witness hears nothing. It is no older than a change that ends the rest, because
//
//   - the store was asked while a connection was open, so a change that the answer does not have is reported later;
//   - the driver asks the database that has all changes which were reported, and which no failover takes back.
//
// A change may have been committed and not be reported yet: then its report wakes the listeners, behind the answer. What becomes due by
// time alone bounds how long an answer stands.

// shortestStand and longestStand bound how long an answer stands. They are a precaution against a change that is not reported, such as
// rows that were restored from a backup.
const shortestStand, longestStand = 20 * time.Minute, 40 * time.Minute

// standing is the last answer that the store rests.
type standing struct {
	mu sync.Mutex
	// reports is the number of the Witness before the store was asked.
	reports uint64
	until   time.Time
}

func (s *standing) stands(reports uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports == reports && time.Now().Before(s.until)
}

func (s *standing) keep(reports uint64, lasts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports, s.until = reports, time.Now().Add(min(lasts, shortestStand+rand.N(longestStand-shortestStand)))
}

// heard returns the number of the Witness, and whether answers may stand.
func (e *Engine) heard() (reports uint64, hears bool) {
	if w, ok := e.db.(driver.Witness); ok {
		return w.Heard()
	}
	return 0, false
}

// restingOf asks the stores whose answer does not stand, all together. A store that is closed does not rest, and is not asked.
func restingOf(ctx context.Context, rester driver.Rester, stores []any) ([]bool, error) {
	type question struct {
		e       *Engine
		place   int
		reports uint64
		hears   bool
	}
	var questions []question
	var asked []driver.Rest
	place := -1
	resting, err := restOf(ctx, stores, func(e *Engine) (bool, error) {
		place++
		if err := e.life.Usable(ctx); err != nil {
			return false, err
		}
		reports, hears := e.heard()
		if hears && e.stands.stands(reports) {
			return true, nil
		}
		questions, asked = append(questions, question{e, place, reports, hears}), append(asked, e.rest())
		return false, nil
	})
	if err != nil || len(asked) == 0 {
		return resting, err
	}
	lasts, err := rester.Resting(ctx, asked)
	if err != nil {
		return nil, err
	}
	for i, q := range questions {
		if resting[q.place] = lasts[i] > 0; lasts[i] < 0 {
			resting[q.place] = searched(ctx, q.e)
		}
		if q.hears && lasts[i] > 0 {
			q.e.stands.keep(q.reports, lasts[i])
		}
	}
	return resting, nil
}

// searchedWithin bounds the search of one of several stores, which may wait for a lock.
const searchedWithin = 5 * time.Second

// searched reports whether a search finds nothing to do. A store that cannot be asked does not rest.
func searched(ctx context.Context, e *Engine) bool {
	ctx, cancel := context.WithTimeout(ctx, searchedWithin)
	defer cancel()
	resting, err := e.searchedResting(ctx)
	return resting && err == nil
}
