package suite

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// model is a queue in memory that follows the contract. One caller uses it at a time. Its clock
// is the sum of the durations that Elapse added since the walk began. The model ignores the real
// time of a walk, because each duration in a walk is a multiple of ten minutes, and Elapse adds
// one second more than such a multiple.
type model struct {
	Now    time.Duration
	Retain time.Duration
	// inSteps is true for a store that queues due records in steps. A claim of such a store may
	// see the queue as it was at an earlier time.
	inSteps bool
	// fair is true for a store whose topics are all fair.
	fair bool
	// tidied has the expired leases that the last claim ended.
	tidied map[*Item]tidiedLease
	// calls counts the calls that set a due time. It orders the calls that happen at one time.
	calls int
	// items are in the order in which they were appended.
	Items  []*Item
	Groups []*modelGroup
	// keys holds the time at which the record of a dedup key was appended, by topic and key.
	keys map[[2]string]time.Duration
	// pauses are the paused scopes. hasPaused is true after the first pause of the walk.
	pauses    []roles.PauseScope
	hasPaused bool
}

type tidiedLease struct {
	owner outmill.OwnerToken
	until time.Duration
	call  int
}

type modelGroup struct {
	Name   string
	topics []outmill.Topics
}

// Item is a record as the model sees it.
type Item struct {
	ID         outmill.WorkItemID
	message    int
	Name       string
	Group      string
	topic, key string
	tenant     string
	payload    []byte
	size       int

	Status outmill.Status
	// due is the time of the first attempt, and Next that of the next one. dueCall is the call
	// that set Next. The record was appended at the time appended, in the call appendedCall.
	due, Next    time.Duration
	dueCall      int
	appended     time.Duration
	appendedCall int
	// renewed is true from a requeue, or the drop of the group that the record is taken from, until the
	// next claim: the claims before do not count.
	renewed    bool
	expires    time.Duration
	mayExpire  bool
	Attempts   int
	claims     int
	Expiries   int
	owner      outmill.OwnerToken
	leaseUntil time.Duration
	leaseCall  int
	processed  time.Duration
	processor  string
	parked     bool
}

func (m *model) String() string {
	s := fmt.Sprintf("now %s\n", m.Now)
	for _, g := range m.Groups {
		s += fmt.Sprintf("group %s reads %+v\n", g.Name, g.topics)
	}
	for _, it := range m.Items {
		s += it.String() + "\n"
	}
	return s
}

func (it *Item) String() string {
	return fmt.Sprintf("%s group=%q %s/%s %s next=%s expires=%t:%s attempts=%d claims=%d expiries=%d owner=%.8s until=%s parked=%t",
		it.Name, it.Group, it.topic, it.key, it.Status, it.Next, it.mayExpire, it.expires,
		it.Attempts, it.claims, it.Expiries, it.owner, it.leaseUntil, it.parked)
}

func (m *model) expired(it *Item) bool { return it.mayExpire && it.expires <= m.Now }

func (m *model) leaseEnded(it *Item) bool {
	return it.Status == outmill.StatusLeased && it.leaseUntil <= m.Now
}

// ready reports whether the item is due and can be claimed. It ignores the order.
func (m *model) ready(it *Item) bool {
	pending := it.Status == outmill.StatusPending && it.Next <= m.Now
	return (pending || m.leaseEnded(it)) && !m.expired(it)
}

// waitsForRetry reports whether the item was claimed before and is due later.
func (m *model) waitsForRetry(it *Item) bool {
	return it.Status == outmill.StatusPending && it.Next > m.Now && !it.isNew() && !m.expired(it)
}

// isNew reports whether the item was not claimed since it was appended, requeued or given back.
func (it *Item) isNew() bool { return it.claims == 0 || it.renewed }

// held reports whether the item is leased by an owner for which who returns true.
func (m *model) held(it *Item, who func(outmill.OwnerToken) bool) bool {
	return it.Status == outmill.StatusLeased && it.leaseUntil > m.Now && who(it.owner)
}

// lane returns the topic or key by which the item is ordered. "" means that it has no order.
func (m *model) lane(it *Item, order outmill.Order) string {
	switch {
	case order == outmill.OrderTopic:
		return it.topic
	case order == outmill.OrderKey && it.key != "":
		return fmt.Sprintf("%s\x00%d\x00%s", it.topic, m.part(it), it.key)
	}
	return ""
}

// peers returns the other items of the item's lane that are pending or leased.
func (m *model) peers(it *Item, order outmill.Order) []*Item {
	name := m.lane(it, order)
	if name == "" {
		return nil
	}
	var list []*Item
	for _, other := range m.Items {
		alive := other.Status == outmill.StatusPending || other.Status == outmill.StatusLeased
		if other != it && alive && other.Group == it.Group && m.lane(other, order) == name {
			list = append(list, other)
		}
	}
	return list
}

// selects reports whether the claim asks for the item's group and topic.
func selects(req outmill.ClaimRequest, it *Item) bool {
	return it.Group == req.Group && req.Topics.Match(it.topic)
}

// forbids returns the reason why a claim must not return the item after the items in taken, or ""
// if it may.
func (m *model) forbids(req outmill.ClaimRequest, it *Item, taken []*Item) string {
	switch {
	case !selects(req, it):
		return "it is of another group or topic"
	case !m.ready(it):
		return "it is not due, leased, expired or settled"
	case m.paused(it):
		return "it is paused"
	case m.full(req, it):
		return "its part is full"
	case parks(req) && m.parkedBefore(it):
		return "its key is parked"
	}
	stranger := func(owner outmill.OwnerToken) bool { return owner != req.Owner }
	for _, peer := range m.peers(it, req.Order) {
		switch {
		case Contains(taken, peer):
		case m.held(peer, stranger):
			return fmt.Sprintf("another owner holds %s of its %s", peer.Name, req.Order)
		case peer.message > it.message:
		case m.ready(peer) && (!m.inSteps || !m.cameFirst(req, it, peer)):
			return fmt.Sprintf("%s comes before it", peer.Name)
		case m.waitsForRetry(peer) && req.KeyPolicy != outmill.KeySkip:
			return fmt.Sprintf("%s before it waits for a retry", peer.Name)
		}
	}
	return ""
}

// cameFirst reports whether the item was claimable at some time at which the earlier peer was not.
func (m *model) cameFirst(req outmill.ClaimRequest, it, peer *Item) bool {
	after := func(time time.Duration, call int) bool {
		return cmp.Or(cmp.Compare(time, it.Next), cmp.Compare(call, it.dueCall)) > 0 &&
			cmp.Or(cmp.Compare(time, it.appended), cmp.Compare(call, it.appendedCall)) > 0
	}
	lease, tidied := m.tidied[peer]
	if peer.Status == outmill.StatusLeased {
		lease, tidied = tidiedLease{peer.owner, peer.leaseUntil, peer.leaseCall}, true
	}
	if tidied {
		return lease.owner == req.Owner && after(lease.until, lease.call)
	}
	return (peer.isNew() || req.KeyPolicy == outmill.KeySkip) && after(peer.Next, peer.dueCall)
}

// owed returns an item that an empty claim must have returned, or nil.
func (m *model) owed(req outmill.ClaimRequest) *Item {
	for _, it := range m.Items {
		if m.forbids(req, it, nil) == "" && !m.arguable(req, it) {
			return it
		}
	}
	return nil
}

// arguable reports whether the contract leaves the case open: the claim's owner holds a later
// record of the lane, or a later record has parked the key.
func (m *model) arguable(req outmill.ClaimRequest, it *Item) bool {
	if parks(req) && m.keyParked(it) {
		return true
	}
	own := func(owner outmill.OwnerToken) bool { return owner == req.Owner }
	for _, peer := range m.peers(it, req.Order) {
		if m.held(peer, own) && peer.message > it.message {
			return true
		}
	}
	return false
}

func parks(req outmill.ClaimRequest) bool {
	return req.Order == outmill.OrderKey && req.KeyPolicy == outmill.KeyPark
}

// Contains reports whether it is one of the items.
func Contains(items []*Item, it *Item) bool {
	for _, other := range items {
		if other == it {
			return true
		}
	}
	return false
}

// countExpiry counts a lease that expired. From the suspect on, it is a failed attempt too.
func (it *Item) countExpiry() {
	if it.Expiries >= outmill.SuspectExpiries {
		it.Attempts++
	}
	it.Expiries++
}

func (m *model) claim(req outmill.ClaimRequest, it *Item) {
	if it.Status == outmill.StatusLeased {
		it.countExpiry()
	}
	it.Status, it.renewed = outmill.StatusLeased, false
	it.owner = req.Owner
	it.leaseUntil, it.leaseCall = m.Now+req.Lease, m.calls
	it.claims++
}

// toPending ends the item's lease.
func (it *Item) toPending() {
	it.Status = outmill.StatusPending
	it.owner = outmill.OwnerToken{}
	it.leaseUntil = 0
}

func (it *Item) toDead() {
	it.toPending()
	it.Status = outmill.StatusDead
}

// standing returns the item of the lease, or nil if the lease no longer stands.
func (m *model) standing(lease outmill.Lease) *Item {
	it := m.find(lease.ID)
	if it == nil || it.Status != outmill.StatusLeased || it.owner != lease.Owner || it.claims != lease.Claim {
		return nil
	}
	return it
}

func (m *model) find(id outmill.WorkItemID) *Item {
	for _, it := range m.Items {
		if it.ID == id {
			return it
		}
	}
	return nil
}

func (m *model) Remove(gone func(*Item) bool) int {
	kept := m.Items[:0]
	for _, it := range m.Items {
		if !gone(it) {
			kept = append(kept, it)
		}
	}
	n := len(m.Items) - len(kept)
	m.Items = kept
	return n
}

func (m *model) ack(it *Item) {
	if m.Retain == 0 {
		m.Remove(func(other *Item) bool { return other == it })
		return
	}
	it.toPending()
	it.Status, it.processed, it.processor = outmill.StatusProcessed, m.Now, Worker
}

// sameKey reports whether both are of one group, topic, part and key.
func (m *model) sameKey(a, b *Item) bool {
	return a.key != "" && a.key == b.key && a.topic == b.topic && a.Group == b.Group && m.part(a) == m.part(b)
}

func (m *model) keyParked(it *Item) bool {
	for _, other := range m.Items {
		if other.parked && m.sameKey(it, other) {
			return true
		}
	}
	return false
}

// parkedBefore reports whether an earlier record of the item's key is parked.
func (m *model) parkedBefore(it *Item) bool {
	for _, other := range m.Items {
		if other.parked && m.sameKey(it, other) && other.message < it.message {
			return true
		}
	}
	return false
}

// fail makes the item dead. With park it parks the later items of the key, and returns them.
func (m *model) fail(it *Item, park bool) (behind []*Item) {
	it.toDead()
	it.Attempts++
	if !park || it.key == "" {
		return nil
	}
	it.parked = true
	for _, other := range m.Items {
		if m.sameKey(it, other) && other.message > it.message && other.Status == outmill.StatusPending {
			other.toDead()
			other.parked = true
			behind = append(behind, other)
		}
	}
	return behind
}

// requeue makes the dead item pending again, with the items that were parked with it.
func (m *model) requeue(it *Item) int {
	if it.Status != outmill.StatusDead {
		return 0
	}
	together := []*Item{it}
	if it.parked {
		for _, other := range m.Items {
			if other != it && other.parked && m.sameKey(it, other) {
				together = append(together, other)
			}
		}
	}
	for _, it := range together {
		it.toPending()
		it.parked, it.mayExpire, it.renewed = false, false, true
		it.Next, it.Attempts, it.Expiries = m.Now, 0, 0
		it.dueCall = m.calls
	}
	return len(together)
}

// appendMessage adds an item for each group that reads the topic, and returns them. It adds none
// for a duplicate.
func (m *model) appendMessage(r *outmill.Record, message int) []*Item {
	if r.DedupKey != "" {
		key := [2]string{r.Topic, r.DedupKey}
		if seen, ok := m.keys[key]; ok && m.Now < seen+DedupWindow {
			return nil
		}
		m.keys[key] = m.Now
	}
	groups := m.readers(r.Topic)
	slices.Sort(groups)
	if len(groups) == 0 {
		groups = []string{""}
	}
	var added []*Item
	for _, g := range groups {
		it := &Item{
			message: message, Name: r.MessageID, Group: g, topic: r.Topic, key: r.Key, tenant: r.TenantID,
			payload: r.Payload, size: r.Size(),
			Status: outmill.StatusPending, due: m.Now + r.Delay, Next: m.Now + r.Delay,
			dueCall: m.calls, appended: m.Now, appendedCall: m.calls,
			mayExpire: r.TimeToLive > 0, expires: m.Now + r.TimeToLive,
		}
		added = append(added, it)
	}
	m.Items = append(m.Items, added...)
	return added
}
