package postgres

import (
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
)

// A poll of many topics looks at each line of the log, and most polls find nothing.
// So the store remembers at which place of the log a look found nothing: until the
// sequence moves on, there is nothing new, and a poll asks for the sequence alone.
//
// That holds if no transaction was writing to the log when the look began, because
// then none is left that has a place and is not finished. Each writer holds a lock
// on the log from before it takes its first place until after its end, so the look
// asks, in this order: the place, the locks, and, in a later statement with a
// snapshot of its own, the lines. Leases that end are the other thing that makes
// a line ready: the look notes when the next one does. And a crash of the server may
// take claims and acks back, which do not wait for the disk, while the server says
// that it was there all the time: so the log is looked at now and then all the same.

const (
	// manyTopics is how many names a claim looks for one by one. With more of them
	// it leaps through the topics that have records.
	manyTopics = 16
	// maxRests bounds the memory for selections that are never seen again.
	maxRests = 64
	// restFor is how long a look counts at most.
	restFor = 5 * time.Second

	sqlRestPlace = `SELECT place, pg_postmaster_start_time(), current_setting('transaction_isolation') = 'read committed' FROM ` +
		sequenceNow + ` AS s`

	sqlLogWriters = `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock'
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation = {q:log}::regclass)`
)

// rest says that a selection had nothing in the log up to a place.
type rest struct {
	place int64
	since time.Time
	// until is when a lease ends, or the look is too old.
	until time.Time
}

// rests are the selections that had nothing when they were looked for. The zero
// value is ready.
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

// logLook is one look for the topics that have something in the log: at some of its
// lines, and at the topics of which the store has heard.
type logLook struct {
	s     *Store
	group string
	// key is the selection's, roundKey that of its rounds.
	key, roundKey string
	included      func(topic string) bool
	// resting is what was known before.
	resting bool
	known   rest

	place rest
	round round
	heard []heardTopic
	// looked is the round as it is after the look.
	looked round
}

// lookAtRest begins a look of a claim that covers many topics.
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

// steps ask for the place alone while the log is at rest.
func (l *logLook) steps(match, found func(topic string) bool) []step {
	l.place = rest{}
	committed, writers := false, false
	place := step{template: sqlRestPlace, row: func(scan func(...any) error) error {
		return scan(&l.place.place, &l.place.since, &committed)
	}}
	if l.resting {
		return []step{place}
	}
	l.looked = l.round
	var steps []step
	if l.round.after == nil {
		steps = []step{place, {template: sqlLogWriters, row: func(scan func(...any) error) error {
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
	return append(steps, step{template: sqlLogDueFrom, args: []any{l.group, l.round.after, linesOfLook},
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

// moved is true where the log was at rest and is no more: then it is looked at.
func (l *logLook) moved() bool {
	if !l.resting || l.place.place == l.known.place && l.place.since.Equal(l.known.since) {
		return false
	}
	l.resting = false
	l.s.rests.forget(l.key)
	return true
}

// note remembers what the look found, and returns whether there are lines left to look at.
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
