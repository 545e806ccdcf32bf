package postgres

import (
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
)

// A poll of many topics checks each line of the log, and most polls find nothing. So the store
// remembers the place of the sequence at which a check found nothing. Until the sequence moves
// on there is nothing new, and a poll reads only the sequence.
//
// That holds if no transaction was writing to the log when the check began, because then no
// unfinished transaction has a place. Each writer holds a lock on the log from before its first
// place until after its end. So the check reads, in this order: the place, the locks, and the
// lines, in a later statement with its own snapshot. A line also becomes ready when a lease
// ends, so the check notes the end of the next lease. And a crash of the server may undo claims
// and acks, which do not wait for the disk, although the sequence has not moved. So the log is
// checked now and then in any case.

const (
	// manyTopics is the most names that a claim searches one by one. If there are more, it
	// searches all topics that have records.
	manyTopics = 16
	// maxRests limits the memory for selections that are not used again.
	maxRests = 64
	// restFor is how long the result of a check is valid at most.
	restFor = 5 * time.Second

	sqlRestPlace = `SELECT place, pg_catalog.pg_postmaster_start_time(),
	pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' FROM ` + sequenceNow + ` AS s`

	sqlLogWriters = `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'relation'
	AND mode OPERATOR(pg_catalog.=) 'RowExclusiveLock' AND database OPERATOR(pg_catalog.=)
		(SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
	AND relation OPERATOR(pg_catalog.=) {q:log}::pg_catalog.regclass)`
)

// rest notes that a selection had no records in the log up to a place.
type rest struct {
	place int64
	since time.Time
	// until is when a lease ends, or the result is too old.
	until time.Time
}

// rests are the selections for which a check found nothing. The zero value is ready to use.
type rests struct {
	mu    sync.Mutex
	known map[string]rest
}

func (r *rests) get(key string) (rest, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.known[key]
	if ok && time.Now().After(found.until) {
		delete(r.known, key)
		return rest{}, false
	}
	return found, ok
}

func (r *rests) put(key string, found rest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxRests {
		r.known = map[string]rest{}
	}
	r.known[key] = found
}

func (r *rests) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, key)
}

func restKey(group string, topics outmill.Topics) string {
	return group + "\x00" + strings.Join(topics.Include, "\x00") + "\x00\x00" + strings.Join(topics.Exclude, "\x00")
}

// logLook is one search for topics that have records in the log: in some of its lines, and in
// the topics of which the store was notified.
type logLook struct {
	s     *Store
	group string
	// key is the selection's key, roundKey the key of its rounds.
	key, roundKey string
	included      func(topic string) bool
	// resting is the result of an earlier check.
	resting bool
	known   rest

	place rest
	round round
	heard []heardTopic
	// looked is the round after this search.
	looked round
}

// lookAtRest starts the search of a claim that covers many topics.
func (s *Store) lookAtRest(req outmill.ClaimRequest) *logLook {
	l := &logLook{s: s, group: req.Group, key: restKey(req.Group, req.Topics)}
	if l.known, l.resting = s.rests.get(l.key); l.resting {
		return l
	}
	include := outmill.Topics{Include: req.Topics.Include}
	l.roundKey, l.included = restKey(req.Group, include), include.Matcher()
	l.round = s.rounds.takeUp(l.roundKey)
	l.round.mixed = l.round.mixed || l.round.of != l.key
	return l
}

// steps search the log.
func (l *logLook) steps(match, found func(topic string) bool) []step {
	l.place = rest{}
	committed, writers := false, false
	place := step{template: sqlRestPlace, bare: true, row: func(scan func(...any) error) error {
		return scan(&l.place.place, &l.place.since, &committed)
	}}
	l.looked = l.round
	var steps []step
	if l.round.after == nil {
		steps = []step{place, {template: sqlLogWriters, bare: true, row: func(scan func(...any) error) error {
			err := scan(&writers)
			l.looked.begin(l.key, l.place, committed && !writers)
			return err
		}}}
	}
	l.heard = l.s.rounds.heardOf(l.roundKey, l.included, match)
	if len(l.heard) > 0 {
		steps = append(steps, logDue(l.group, namesOfHeard(l.heard), func(topic string) {
			found(topic)
			for i := range l.heard {
				l.heard[i].due = l.heard[i].due || l.heard[i].name == topic
			}
		}))
	}
	return append(steps, step{template: sqlLogDueFrom, bare: true, args: []any{l.group, l.round.after, linesOfLook},
		row: func(scan func(...any) error) error {
			var topic *string
			var left pgtype.Interval
			if err := scan(&topic, &l.looked.after, &left); err != nil {
				return err
			}
			if topic != nil {
				l.looked.found = found(*topic) || l.looked.found
				return nil
			}
			l.looked.leaseEnds(left)
			return nil
		}})
}

// moved reports whether the log was at rest and no longer is. Then it must be searched.
func (l *logLook) moved() bool {
	if !l.resting || l.place.place == l.known.place && l.place.since.Equal(l.known.since) {
		return false
	}
	l.resting = false
	l.s.rests.forget(l.key)
	return true
}

// note remembers the result of the search, and reports whether there are lines left to search.
func (l *logLook) note() (more bool) {
	if l.resting {
		return false
	}
	l.s.rounds.forget(l.roundKey, l.heard)
	if l.looked.after != nil {
		l.s.rounds.putDown(l.roundKey, l.looked)
		return true
	}
	if place, resting := l.looked.rest(); resting {
		l.s.rests.put(l.key, place)
	}
	return false
}
