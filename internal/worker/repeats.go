package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// mostPutOff is how often in a row a record is put off by its handler's own choice, or given
	// back, before the worker reports it.
	mostPutOff = 100
	// mostRows bounds the records whose rows a worker remembers, and rowsFor how long it reports
	// one that did not come again, because another process may have it.
	mostRows = 20_000
	rowsFor  = 10 * time.Minute
	// reportEvery is the shortest time between two reports.
	reportEvery = time.Second
)

// row says how often in a row a record came back without an attempt.
type row struct {
	record       outmill.WorkItemID
	store, topic string
	// since is the number of the first claim of the row. Claims of other processes count too.
	since int
	// attempts is the number that the record has if the row goes on.
	attempts int
	times    int
	// collides says that something was in the handler's way, and reason what; otherwise the handler
	// itself has put the record off, or the worker has given it back.
	collides bool
	reason   string
	at       time.Time
}

// most is how often in a row is too often.
func (r *row) most() int {
	if r.collides {
		return storekit.MostCollisions
	}
	return mostPutOff
}

func (r *row) isLong() bool { return r.times >= r.most() }

// Repeats remembers the records that come back without an attempt. It forgets the oldest of them
// where there are too many. Workers of one subscriber share it.
type Repeats struct {
	mu sync.Mutex
	// rows has the records that came back of late, and older those of before.
	rows, older map[outmill.WorkItemID]*row
	// changed has a value after a change of what Problems returns.
	changed chan struct{}
}

// NewRepeats returns one that remembers nothing.
func NewRepeats() *Repeats {
	return &Repeats{rows: map[outmill.WorkItemID]*row{}, changed: make(chan struct{}, 1)}
}

// cameBack notes that the record goes back without an attempt, or with one if counts says so of a
// row of this length, and returns the length.
func (s *Repeats) cameBack(rec *outmill.Record, collides bool, reason string, counts func(times int) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(rec.ID)
	if r == nil || r.collides != collides || r.attempts != rec.Attempts {
		r = &row{record: rec.ID, store: rec.Store, topic: rec.Topic, since: rec.Claims, attempts: rec.Attempts, collides: collides}
	}
	was := r.isLong()
	r.times, r.reason, r.at = rec.Claims-r.since+1, storekit.ProblemText(reason), time.Now()
	if counts(r.times) {
		r.attempts++
	}
	s.keep(r)
	if r.isLong() != was {
		signal(s.changed)
	}
	return r.times
}

// gaveBack is cameBack for a record that the worker gives back although no handler has asked for it.
// It leaves a row of collisions as it is.
func (s *Repeats) gaveBack(rec *outmill.Record) {
	s.mu.Lock()
	r := s.find(rec.ID)
	s.mu.Unlock()
	if r == nil || !r.collides {
		s.cameBack(rec, false, "", never)
	}
}

func never(int) bool { return false }

// ended notes an outcome after which the record does not come back without an attempt.
func (s *Repeats) ended(id outmill.WorkItemID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rows) == 0 && len(s.older) == 0 {
		return
	}
	r := s.find(id)
	if r == nil {
		return
	}
	delete(s.rows, id)
	delete(s.older, id)
	if r.isLong() {
		signal(s.changed)
	}
}

func (s *Repeats) find(id outmill.WorkItemID) *row {
	if r := s.rows[id]; r != nil {
		return r
	}
	return s.older[id]
}

func (s *Repeats) keep(r *row) {
	if len(s.rows) >= mostRows/2 {
		s.older, s.rows = s.rows, map[outmill.WorkItemID]*row{}
	}
	delete(s.older, r.record)
	s.rows[r.record] = r
}

// long returns the rows that are too long, the longest first.
func (s *Repeats) long(now time.Time) (list []row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rows := range []map[outmill.WorkItemID]*row{s.older, s.rows} {
		for _, r := range rows {
			if r.isLong() && now.Sub(r.at) < rowsFor {
				list = append(list, *r)
			}
		}
	}
	slices.SortFunc(list, func(a, b row) int { return b.times - a.times })
	return list
}

// Problems describes the records that come back again and again without an attempt, by topic, for
// the registration of the group; nil is none.
func (s *Repeats) Problems() map[string]string {
	list := s.long(time.Now())
	if len(list) == 0 {
		return nil
	}
	byTopic := map[string][]row{}
	for _, r := range list {
		byTopic[r.topic] = append(byTopic[r.topic], r)
	}
	problems := map[string]string{}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		if len(problems) == storekit.MaxProblems {
			break
		}
		problems[topic] = textOf(byTopic[topic])
	}
	return problems
}

// Most returns how often in a row the record with the longest row came back without an attempt; 0
// if no row is too long.
func (s *Repeats) Most() int {
	if list := s.long(time.Now()); len(list) > 0 {
		return list[0].times
	}
	return 0
}

// Report calls tell when Problems has changed, at most once a second, until ctx ends.
func (s *Repeats) Report(ctx context.Context, tell func(ctx context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		// If it fails, the next round of the upkeep registers again.
		_ = tell(ctx)
		if storekit.Pause(ctx, reportEvery) != nil {
			return
		}
	}
}

// textOf says how many records of a topic have long rows, and names the one with the longest.
func textOf(rows []row) string {
	longest := rows[0]
	text := fmt.Sprintf("%srecord %s, %d times in a row, last at %s", storekit.RepeatedProblem, longest.record, longest.times,
		longest.at.UTC().Format(time.RFC3339))
	if longest.collides {
		text += ", because of: " + longest.reason
	} else {
		text += ", because its handler puts it off or the worker gives it back"
	}
	if more := len(rows) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more records of the topic)", more)
	}
	return storekit.ProblemText(text)
}
