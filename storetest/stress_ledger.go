package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill"
)

// phase is the progress of the registration of the groups.
type phase int

const (
	unregistered phase = iota
	registering
	firstRegistered
	allRegistered
)

// ledger has the facts about the records, and the errors that were found.
type ledger struct {
	writing atomic.Bool

	mu    sync.Mutex
	phase phase
	// open counts appends in progress, by the phase in which they began.
	open    map[phase]int
	kept    map[string]span
	readers map[string]*readings
	wrong   []string
}

// span is the phases in which the append of a record began and ended.
type span struct{ began, ended phase }

// readings has the facts about the records of one group.
type readings struct {
	times map[string]int
	// late has records that a worker may have acked after the end of its lease.
	late map[string]bool
	// last is the number of the last record that was handled, by topic and key.
	last  map[string]int
	hands map[string]*hand
	// drops counts how often a drop of the group began or ended, so that it is odd during
	// one.
	drops int
}

// hand is the worker that holds records of a key, and how many.
type hand struct {
	owner outmill.OwnerToken
	count int
}

func newLedger() *ledger {
	l := &ledger{open: map[phase]int{}, kept: map[string]span{}, readers: map[string]*readings{}}
	l.writing.Store(true)
	return l
}

// of returns the readings of the group. The caller holds mu.
func (l *ledger) of(g readers) *readings {
	if l.readers[g.name] == nil {
		l.readers[g.name] = &readings{times: map[string]int{}, late: map[string]bool{}, last: map[string]int{}, hands: map[string]*hand{}}
	}
	return l.readers[g.name]
}

// blame adds an error. The caller does not hold mu.
func (l *ledger) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(format, args...)
}

// note is the same as blame, for a caller that holds mu.
func (l *ledger) note(format string, args ...any) {
	if len(l.wrong) < 20 {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

// failed notes that a call returned an error. The end of the walk cancels calls.
func (l *ledger) failed(call string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		l.blame("%s: %v", call, err)
	}
}

func (l *ledger) beginAppend() phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[l.phase]++
	return l.phase
}

func (l *ledger) endAppend(began phase, records []*outmill.Record, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[began]--
	for _, r := range records {
		if kept {
			l.kept[r.MessageID] = span{began, l.phase}
		}
	}
}

// keptSoFar returns the number of committed records.
func (l *ledger) keptSoFar() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept)
}

// reach begins a phase. The last one waits for the end of each append that began before.
func (l *ledger) reach(ctx context.Context, next phase) {
	l.mu.Lock()
	l.phase = next
	l.mu.Unlock()
	for next == allRegistered && l.openBefore(next) && ctx.Err() == nil {
		pause(ctx, time.Millisecond)
	}
}

func (l *ledger) openBefore(next phase) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for began, n := range l.open {
		if began < next && n > 0 {
			return true
		}
	}
	return false
}

// dropping notes that a drop of the group begins or has ended. A drop may delete a record that a
// worker holds. Then a later record of its key may be delivered, because its transaction was open.
func (l *ledger) dropping(g readers) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(g)
	of.drops++
	clear(of.last)
	clear(of.hands)
}

func (l *ledger) dropsOf(g readers) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(g).drops
}

func keyOf(r *outmill.Record) string { return r.Topic + " " + r.Key }

// received notes who holds the records. Two workers must not hold records of one key at the same
// time. The exception is a group that is dropped, whose worker may hold deleted records.
func (l *ledger) received(g readers, owner outmill.OwnerToken, found []*outmill.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.order == outmill.OrderNone {
		return
	}
	hands := l.of(g).hands
	for _, r := range found {
		h := hands[keyOf(r)]
		if h == nil {
			h = &hand{owner: owner}
			hands[keyOf(r)] = h
		}
		if h.owner != owner {
			if h.count > 0 && r.Key[0] == safe && g != passing {
				l.note("%s: two workers hold %s at once: %s", g.name, keyOf(r), r.MessageID)
			}
			h.owner, h.count = owner, 0
		}
		h.count++
	}
}

// letGo notes that the worker no longer holds the records. Call it before the call of the store.
func (l *ledger) letGo(g readers, records ...*outmill.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		if h := l.of(g).hands[keyOf(r)]; h != nil && h.owner == r.Owner {
			h.count--
		}
	}
}

// ackedLate notes that the records may be acked under a lease that has ended.
func (l *ledger) ackedLate(g readers, records []*outmill.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		l.of(g).late[r.MessageID] = true
	}
}

// handled notes a record. drops is dropsOf before its claim. It checks the order only of records
// that are claimed and handled between two drops of their group, because a worker may still hold
// a record from before a drop together with later records.
func (l *ledger) handled(g readers, drops int, r *outmill.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(g)
	of.times[r.MessageID]++
	if r.Key[0] != safe || g.order == outmill.OrderNone || drops != of.drops || drops%2 == 1 {
		return
	}
	var n int
	_, _ = fmt.Sscanf(r.MessageID[strings.Index(r.MessageID, "/")+1:], "%d", &n)
	if last, known := of.last[keyOf(r)]; known && n <= last {
		l.note("%s: %s came after %s/%d", g.name, r.MessageID, r.Key, last)
	}
	of.last[keyOf(r)] = n
}
