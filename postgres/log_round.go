package postgres

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// A group may have a hundred thousand lines in the log, and to look at all of them takes
// a second. So a claim looks at some, and the next claim goes on behind them: together
// they make a round. In between it looks at the topics of which the store has heard that
// they have something, so that those need not wait for the round to come to them. A round
// that finds nothing says that the log was at rest when it began.

const (
	// linesOfLook is how many lines one look goes over, at some 10 µs each.
	linesOfLook = 1000
	// maxHeard bounds the topics that a selection has heard of, and heardAtOnce those that
	// one look tries. The round comes to the others.
	maxHeard    = 5000
	heardAtOnce = 200

	sqlLogDueFrom = `SELECT topic, line, lease_left FROM {p:log_due_from}($1::text, $2::bigint, $3::integer)`
)

// round is how far a round has come.
type round struct {
	// after is the line that was looked at last; nil at the beginning, and at the end.
	after *int64
	began time.Time
	// then is what there was at the beginning, and quiet whether nobody was writing.
	then  rest
	quiet bool
	// leaseEnd is when the first lease ends that was seen.
	leaseEnd time.Time
	found    bool
	// of is the selection that began it, mixed whether another one went on with it, which
	// may have left out other topics.
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

// rest is what a whole round says: that there was nothing, or not. What takes long counts
// for longer, so that it is a twentieth of the work at most.
func (r *round) rest() (place rest, resting bool) {
	place = r.then
	place.until = r.began.Add(max(restFor, 20*time.Since(r.began)))
	if !r.leaseEnd.IsZero() && r.leaseEnd.Before(place.until) {
		place.until = r.leaseEnd
	}
	return place, r.quiet && !r.found && !r.mixed
}

// rounds are those of selections, whatever they exclude, that have more lines than one
// look goes over. The zero value is ready.
type rounds struct {
	mu    sync.Mutex
	known map[string]*going
	rings uint64
}

// going is a selection's round, and the topics of which it has heard, each with the ring
// that told of it last.
type going struct {
	round round
	heard map[string]uint64
}

// heardTopic is a topic of which the store has heard.
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

// takeUp takes the round to go on with. A claim at the same time begins another one.
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

// hear notes that a topic may have something: see storekit.Waker.
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

// heardOf are some of the topics of which a selection has heard. Those that it does not
// include are forgotten.
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

// forget forgets the topics that had nothing, unless it has heard of them since.
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
