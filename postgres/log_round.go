package postgres

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// A group may have a hundred thousand lines in the log, and a search of all of them takes a
// second. So a claim searches some, and the next claim continues behind them: together they
// make a round. Each claim also searches the topics of which the store was notified, so that
// these need not wait for their turn in the round. A round that finds nothing shows that the
// log was at rest when the round began.

const (
	// linesOfLook is the number of lines of one search, at about 10 µs each.
	linesOfLook = 1000
	// maxHeard is the most topics that a selection remembers from notifications, and
	// heardAtOnce the most of them in one search. The round reaches the others.
	maxHeard    = 5000
	heardAtOnce = 200

	sqlLogDueFrom = `SELECT topic, line, lease_left FROM {p:log_due_from}($1::pg_catalog.text, $2::pg_catalog.int8, $3::pg_catalog.int4)`
)

// round is the progress of a round.
type round struct {
	// after is the last line that was searched; nil at the beginning, and at the end.
	after *int64
	began time.Time
	// then is the rest at the beginning, and quiet whether no transaction was writing then.
	then  rest
	quiet bool
	// leaseEnd is the earliest end of a lease that the round found.
	leaseEnd time.Time
	found    bool
	// of is the selection that began the round. mixed reports whether another selection
	// continued it, which may exclude other topics.
	of    string
	mixed bool
}

func (r *round) begin(of string, place rest, quiet bool) {
	*r = round{of: of, began: time.Now(), then: place, quiet: quiet}
}

func (r *round) leaseEnds(left pgtype.Interval) {
	if !left.Valid {
		return
	}
	after := time.Duration(left.Microseconds)*time.Microsecond + time.Duration(left.Days)*24*time.Hour
	if end := time.Now().Add(after); r.leaseEnd.IsZero() || end.Before(r.leaseEnd) {
		r.leaseEnd = end
	}
}

// rest returns the result of a whole round: whether it found nothing. A result that took long
// is valid for longer, so that rounds are at most a twentieth of the work.
func (r *round) rest() (place rest, resting bool) {
	place = r.then
	place.until = r.began.Add(max(restFor, 20*time.Since(r.began)))
	if !r.leaseEnd.IsZero() && r.leaseEnd.Before(place.until) {
		place.until = r.leaseEnd
	}
	return place, r.quiet && !r.found && !r.mixed
}

// rounds are the rounds of selections that have more lines than one search covers, whatever
// they exclude. The zero value is ready to use.
type rounds struct {
	mu    sync.Mutex
	known map[string]*going
	rings uint64
}

// going is a selection's round, and the topics of its notifications, each with the number
// (ring) of its last notification.
type going struct {
	round round
	heard map[string]uint64
}

// heardTopic is a topic of which the store was notified.
type heardTopic struct {
	name string
	ring uint64
	due  bool
}

func namesOfHeard(heard []heardTopic) []string {
	names := make([]string, len(heard))
	for i, h := range heard {
		names[i] = h.name
	}
	return names
}

// takeUp takes the round to continue. A concurrent claim begins another one.
func (r *rounds) takeUp(key string) (found round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.known[key]; of != nil {
		found, of.round = of.round, round{}
	}
	return found
}

func (r *rounds) putDown(key string, at round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.known[key]
	if of == nil {
		if r.known == nil || len(r.known) >= maxRests {
			r.known = map[string]*going{}
		}
		of = &going{heard: map[string]uint64{}}
		r.known[key] = of
	}
	of.round = at
}

// hear notes that a topic may have records: see roles.Waker.
func (r *rounds) hear(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if topic == "" {
		return
	}
	r.rings++
	for _, of := range r.known {
		if _, known := of.heard[topic]; known || len(of.heard) < maxHeard {
			of.heard[topic] = r.rings
		}
	}
}

// heardOf returns some of the topics of which a selection was notified. It drops those that the
// selection does not include.
func (r *rounds) heardOf(key string, included, match func(topic string) bool) (some []heardTopic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.known[key]
	if of == nil {
		return nil
	}
	for topic, ring := range of.heard {
		if len(some) == heardAtOnce {
			break
		}
		switch {
		case match(topic):
			some = append(some, heardTopic{name: topic, ring: ring})
		case !included(topic):
			delete(of.heard, topic)
		}
	}
	return some
}

// forget drops topics without records, unless the store was notified of them since.
func (r *rounds) forget(key string, heard []heardTopic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.known[key]
	if of == nil {
		return
	}
	for _, h := range heard {
		if !h.due && of.heard[h.name] == h.ring {
			delete(of.heard, h.name)
		}
	}
}
