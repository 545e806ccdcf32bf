package tenants

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// member is the open store of one tenant. See the package comment for its states.
type member struct {
	able
	tenant Tenant
	// owned: the set closes the store.
	owned bool
	// ctx ends when the member is gone.
	ctx context.Context
	end context.CancelFunc

	// lastPauses is what the set has noted of the store's pauses.
	lastPauses atomic.Pointer[roles.PauseList]

	// registering serialises the registrations of the member. No call waits for it longer than its context.
	registering *semaphore.Weighted
	// owes: the registrations that the set knows are not all made.
	owes atomic.Bool
	// paying: the set makes them in the background. The set's lock guards it.
	paying bool

	// repeated knows which calls of the member fail.
	repeated storekit.CallLog

	mu sync.Mutex
	// leases are in flight, with the time until which they stand at least.
	leases map[outmill.Lease]time.Time
	// reserved is the number of records that claims under way may add to leases.
	reserved int
	// most limits leases and reserved together; 0 is no limit. full says that a claim found no
	// room; roomy is then called when a lease is settled.
	most  int
	full  bool
	roomy func()
	// calls are under way.
	calls int
	// closing: the user closes the store. detach removes the set from the store's workers.
	closing bool
	detach  func()
	// changed has a signal when leases or calls went down while the member drains.
	changed  chan struct{}
	draining bool
	// epoch counts the claims that failed. See ownerFor.
	epoch     uint64
	waits     *storekit.Waits
	notBefore time.Time
	lastErr   error
	failedAt  time.Time
	// hung: a call took too long. Until the set has found out that this is over, the member is left
	// out.
	hung bool
	// late: the last claim took long. questions are those whose answers may be handed out. See late.go.
	late      bool
	questions map[*question]struct{}
	// askedAt is when a call that takes long has last asked whether the member answers.
	askedAt time.Time
	rest    restState

	busy busyness
}

func (s *Set) newMember(tenant Tenant, store outmill.Store, owned bool) *member {
	ctx, end := context.WithCancel(context.Background())
	m := &member{detach: func() {}, able: ableOf(store), tenant: tenant, owned: owned, ctx: ctx, end: end,
		leases: map[outmill.Lease]time.Time{}, questions: map[*question]struct{}{}, most: s.cfg.MaxInFlightPerTenant,
		registering: semaphore.NewWeighted(1), changed: make(chan struct{}, 1), waits: storekit.NewWaits(firstTrouble, maxTrouble)}
	m.roomy = func() { s.woken(m, "") }
	return m
}

func (m *member) name() string { return m.tenant.Key }

// begin notes that a call begins. The caller has the set's lock, so that the member is not
// closed in between.
func (m *member) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
}

func (m *member) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls--
	m.signal()
}

func (m *member) signal() {
	if !m.draining {
		return
	}
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// fault notes that a claim or the upkeep failed: both leave the member out for a while. It reports
// whether the member has begun to hang.
func (m *member) fault(err error) (hangs bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.lastErr == nil {
		m.failedAt = now
	}
	m.notBefore, m.lastErr = now.Add(m.waits.Next()), err
	m.rest = restState{stirs: m.rest.stirs + 1}
	hangs = !m.hung && errors.Is(err, context.DeadlineExceeded)
	m.hung = m.hung || hangs
	return hangs
}

// well notes that a call succeeded.
func (m *member) well() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastErr != nil {
		m.waits.Reset()
		m.lastErr, m.notBefore, m.failedAt, m.hung = nil, time.Time{}, time.Time{}, false
	}
}

// trouble returns the error because of which the member is left out; nil where it is not.
func (m *member) trouble(now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hung || m.notBefore.After(now) {
		return m.lastErr
	}
	return nil
}

// failing returns the error of the last claim or upkeep; nil where it succeeded.
func (m *member) failing() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastErr
}

// hangs returns the error of a call that took too long, until that is over.
func (m *member) hangs() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hung {
		return m.lastErr
	}
	return nil
}

// holdsRecord tells whether a lease on that claim of the record is in flight.
func (m *member) holdsRecord(id outmill.WorkItemID, claim int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.leases {
		if l.ID == id && l.Claim == claim {
			return true
		}
	}
	return false
}

// hold notes that leases stand at least until then. Their records name no store.
func (m *member) hold(leases []outmill.Lease, until time.Time) {
	if len(leases) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest.resting = false
	m.rest.stirs++
	for _, l := range leases {
		if m.leases[l].Before(until) {
			m.leases[l] = until
		}
	}
}

// drop notes that leases were settled.
func (m *member) drop(leases []outmill.Lease) {
	m.mu.Lock()
	m.rest.stirs++
	for _, l := range leases {
		delete(m.leases, l)
	}
	m.signal()
	m.unlockRoomy()
}

// reserve makes room for up to so many records, and returns for how many there is room.
func (m *member) reserve(records int, now time.Time) int {
	if m.most == 0 {
		return records
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	room := max(min(records, m.most-len(m.leases)-m.reserved), 0)
	m.reserved += room
	m.full = m.full || room == 0
	return room
}

// unreserve ends a reservation: the records that came of it count as leases.
func (m *member) unreserve(records int) {
	if m.most == 0 {
		return
	}
	m.mu.Lock()
	m.reserved -= records
	m.unlockRoomy()
}

// unlockRoomy unlocks the member, and has readers that found no room look again.
func (m *member) unlockRoomy() {
	wasFull := m.full
	m.full = false
	m.mu.Unlock()
	if wasFull {
		m.roomy()
	}
}

func (m *member) holds(lease outmill.Lease) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := m.leases[lease]
	return held
}

// inFlight counts the leases that stand, and forgets the others; next is when the first ends.
func (m *member) inFlight(now time.Time) (n int, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	for _, until := range m.leases {
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	return len(m.leases), next
}

// forget forgets the leases that have ended. The caller has the lock.
func (m *member) forget(now time.Time) {
	maps.DeleteFunc(m.leases, func(_ outmill.Lease, until time.Time) bool { return until.Before(now) })
}

// forgetEnded bounds the memory for leases that nobody settles.
func (m *member) forgetEnded(now time.Time) {
	m.mu.Lock()
	many := len(m.leases) > 1000
	m.mu.Unlock()
	if many {
		m.inFlight(now)
	}
}

// idle tells whether nothing is in flight, and otherwise when to look again; zero is at the
// next signal.
func (m *member) idle(now time.Time) (idle bool, next time.Time) {
	leases, next := m.inFlight(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	return leases == 0 && m.calls == 0, next
}

// awaitIdle returns when nothing is in flight, or ctx ends.
func (m *member) awaitIdle(ctx context.Context) {
	for {
		idle, next := m.idle(time.Now())
		if idle {
			return
		}
		wait := time.Hour
		if !next.IsZero() {
			wait = time.Until(next) + time.Millisecond
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-m.changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// attach has the store's Close wait until what the set has claimed from it is settled.
func (m *member) attach() error {
	detach, err := storekit.Attach(m.store, m.storeCloses)
	if err != nil {
		return err
	}
	m.detach = detach
	return nil
}

// storeCloses waits until nothing of the member is in flight. The set claims no more from it.
func (m *member) storeCloses(ctx context.Context) {
	m.mu.Lock()
	m.closing, m.draining = true, true
	m.mu.Unlock()
	m.awaitIdle(ctx)
	// The member may be draining too, and waits for the same signal.
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signal()
}

// claimable reports whether records may be claimed from the member.
func (m *member) claimable() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.closing
}

// close ends the member.
func (m *member) close() error {
	m.end()
	m.detach()
	if !m.owned {
		return nil
	}
	return m.failed("close", m.store.Close())
}

// bare returns the leases as the member's store knows them.
func bare(leases []outmill.Lease) []outmill.Lease {
	list := slices.Clone(leases)
	for i := range list {
		list[i].Store = ""
	}
	return list
}

// named returns the leases as the set hands them out.
func (m *member) named(leases []outmill.Lease) []outmill.Lease {
	list := slices.Clone(leases)
	for i := range list {
		list[i].Store = m.name()
	}
	return list
}

// claims are the claims of the store.
func (m *member) claims(raw bool) roles.RawClaims {
	if raw {
		return roles.RawClaimsOf(m.store)
	}
	return roles.ClaimsOf(m.store)
}

// own gives the records the name of the member.
func (m *member) own(records ...*outmill.Record) {
	for _, r := range records {
		r.Store = m.name()
	}
}

// leftOutUntil is when the member may be claimed from again.
func (m *member) leftOutUntil() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notBefore
}
