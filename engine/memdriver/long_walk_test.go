package memdriver_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

// TestLongWalk looks at all rows and notes after each call of a walk with more of each thing than one page has.
// OUTMILL_LONG_WALKS is how many walks it does.
func TestLongWalk(t *testing.T) {
	walks, _ := strconv.Atoi(os.Getenv("OUTMILL_LONG_WALKS"))
	from, _ := strconv.ParseUint(os.Getenv("OUTMILL_LONG_WALK_FROM"), 10, 64)
	for n := range max(walks, 5) {
		seed := from + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newLongWalk(t, seed).run() })
		if t.Failed() {
			return
		}
	}
}

type longWalk struct {
	*testing.T
	*rand.Rand
	h       harness
	store   store
	ctx     context.Context
	scopes  map[roles.PauseScope]bool
	pauses  *roles.PauseList
	owners  []outmill.OwnerToken
	leases  map[outmill.OwnerToken][]*outmill.Record
	log     []string
	fair    bool
	batch   int
	keys    int
	tenants int
	orders  []outmill.Order
}

func newLongWalk(t *testing.T, seed uint64) *longWalk {
	w := &longWalk{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), ctx: t.Context(), scopes: map[roles.PauseScope]bool{}}
	w.batch = []int{0, 0, 1, 2, 3, 7}[w.IntN(6)]
	w.fair = w.IntN(3) == 0
	w.keys, w.tenants = []int{1, 3, 40, 80}[w.IntN(4)], []int{2, 4, 40}[w.IntN(3)]
	w.orders = [][]outmill.Order{
		{outmill.OrderKey}, {outmill.OrderKey, outmill.OrderNone}, {outmill.OrderNone}, {outmill.OrderKey, outmill.OrderNone, outmill.OrderTopic},
	}[w.IntN(4)]
	if w.fair && len(w.orders) == 3 {
		w.orders = w.orders[:2]
	}
	if w.IntN(2) == 0 {
		i := newInterleaved(t, storetest.Options{}, storekit.BatchSize(w.batch))
		w.h = i.harness
		w.store = i.open(w.fairTopics()...)
	} else {
		w.h = newHarness(t, storetest.Options{}, storekit.BatchSize(w.batch))
		w.store = open(t, w.h.store.db, w.h.options, storekit.BatchSize(w.batch), w.fairTopics()...)
	}
	w.owners, w.leases = []outmill.OwnerToken{a, b, c}, map[outmill.OwnerToken][]*outmill.Record{}
	return w
}

func (w *longWalk) fairTopics() []string {
	if w.fair {
		return []string{topic}
	}
	return nil
}

func (w *longWalk) ok(err error) {
	w.Helper()
	if err != nil {
		w.fail("%v", err)
	}
}

func (w *longWalk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *longWalk) fail(format string, args ...any) {
	w.Helper()
	for _, line := range w.log[max(0, len(w.log)-60):] {
		w.Log(line)
	}
	w.Logf("batch %d, fair %v, keys %d, tenants %d, orders %v", w.batch, w.fair, w.keys, w.tenants, w.orders)
	w.Fatalf(format, args...)
}

func (w *longWalk) key() string {
	if w.IntN(8) == 0 {
		return ""
	}
	return fmt.Sprint("k", w.IntN(w.keys))
}

func (w *longWalk) tenant() string { return fmt.Sprint("t", w.IntN(w.tenants)) }

func (w *longWalk) run() {
	if w.fair {
		w.ok(w.store.SetFairTopics(w.ctx))
	}
	w.ok(w.store.RegisterGroup(w.ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{topic}}}))
	for range 150 {
		w.step()
		w.check()
	}
	for scope := range w.scopes {
		_, err := w.store.Resume(w.ctx, scope)
		w.ok(err)
	}
	w.pauses = nil
	w.note("end")
	w.h.store.db.Elapse(3 * time.Hour)
	for n := 0; ; n++ {
		list := w.claim(w.owners[0], w.orders[n%len(w.orders)], outmill.KeyBlock, 50, 0)
		w.ok(w.store.Ack(w.ctx, "", leases(list...)))
		w.check()
		if len(list) == 0 && n%len(w.orders) == 0 {
			break
		}
		w.h.store.db.Elapse(time.Hour)
	}
	w.h.store.db.Elapse(time.Hour)
	for range 3 {
		for _, order := range w.orders {
			list := w.claim(w.owners[0], order, outmill.KeyBlock, 500, 0)
			w.ok(w.store.Ack(w.ctx, "", leases(list...)))
			w.h.store.db.Elapse(time.Hour)
		}
	}
	for _, r := range w.h.store.db.Rows() {
		if r.Stage < driver.Processed {
			w.fail("left: %+v", r)
		}
	}
}

func (w *longWalk) step() {
	switch w.IntN(13) {
	case 0, 1, 2:
		var list []*outmill.Record
		for range []int{1, 5, 40}[w.IntN(3)] {
			r := &outmill.Record{Topic: topic, Key: w.key(), TenantID: w.tenant()}
			switch w.IntN(8) {
			case 0:
				r.Delay = time.Duration(1+w.IntN(60)) * time.Second
			case 1:
				r.TimeToLive = time.Duration(1+w.IntN(120)) * time.Second
			}
			list = append(list, r)
		}
		w.note("append %d", len(list))
		w.ok(w.store.Append(w.ctx, list...))
	case 3, 4, 5, 6:
		owner, order := w.owners[w.IntN(3)], w.orders[w.IntN(len(w.orders))]
		policy := outmill.KeyBlock
		if order == outmill.OrderKey {
			policy = []outmill.KeyPolicy{outmill.KeyBlock, outmill.KeySkip, outmill.KeyPark}[w.IntN(3)]
		}
		if w.fair && order == outmill.OrderTopic {
			return
		}
		w.claim(owner, order, policy, []int{1, 2, 10, 40}[w.IntN(4)], []int{0, 0, 1, 300}[w.IntN(4)])
	case 7, 8:
		owner := w.owners[w.IntN(3)]
		list := w.leases[owner]
		if len(list) == 0 {
			return
		}
		n := 1 + w.IntN(len(list))
		w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		some := leases(list[:n]...)
		w.leases[owner] = list[n:]
		var settle []outmill.Settlement
		for _, l := range some {
			settle = append(settle, outmill.Settlement{Lease: l, Delay: time.Duration(w.IntN(40)) * time.Second, Err: "x", Park: w.IntN(2) == 0})
		}
		switch what := w.IntN(5); what {
		case 0:
			w.note("ack %d", n)
			w.ok(w.store.Ack(w.ctx, "", some))
		case 1:
			w.note("abandon %d", n)
			w.ok(w.store.Abandon(w.ctx, settle))
		case 2:
			w.note("release %d", n)
			w.ok(w.store.Release(w.ctx, some))
		case 3:
			w.note("snooze %d", n)
			w.ok(w.store.Snooze(w.ctx, settle))
		case 4:
			w.note("fail %d", n)
			w.ok(w.store.Fail(w.ctx, settle))
		}
	case 9, 10:
		scope := roles.PauseScope{TenantID: w.tenant()}
		if w.IntN(2) == 0 {
			scope = roles.PauseScope{Topic: topic, Key: fmt.Sprint("k", w.IntN(w.keys))}
		} else if w.IntN(8) == 0 {
			scope = roles.PauseScope{Topic: topic}
		}
		if len(w.scopes) > 0 && w.IntN(2) == 0 {
			for scope = range w.scopes {
				break
			}
		}
		if w.scopes[scope] {
			w.note("resume %v", scope)
			_, err := w.store.Resume(w.ctx, scope)
			w.ok(err)
			delete(w.scopes, scope)
		} else {
			w.note("pause %v", scope)
			w.ok(w.store.Pause(w.ctx, scope, "ann", "x"))
			w.scopes[scope] = true
		}
		list, err := w.store.Paused(w.ctx)
		w.ok(err)
		w.pauses = roles.NewPauseList(1, list)
	case 11:
		by := []time.Duration{time.Second, 20 * time.Second, 70 * time.Second}[w.IntN(3)]
		w.note("elapse %v", by)
		w.h.store.db.Elapse(by)
		switch w.IntN(4) {
		case 0:
			_, err := w.store.ReapExpired(w.ctx, 1+w.IntN(50))
			w.ok(err)
		case 1:
			_, err := w.store.ExpireDue(w.ctx, 1+w.IntN(50))
			w.ok(err)
		}
	case 12:
		rows := w.h.store.db.Rows()
		if len(rows) == 0 {
			return
		}
		slices.SortFunc(rows, func(a, b driver.Row) int { return cmp.Compare(a.Seq, b.Seq) })
		var some []outmill.WorkItemID
		for range 1 + w.IntN(8) {
			some = append(some, rows[w.IntN(len(rows))].ID)
		}
		if w.IntN(2) == 0 {
			w.note("delete")
			_, err := w.store.Delete(w.ctx, some...)
			w.ok(err)
		} else {
			w.note("requeue")
			_, err := w.store.Requeue(w.ctx, some...)
			w.ok(err)
		}
	}
}

// free reports whether a claim may take the row, by the table of docs/store-rules.md.
func (w *longWalk) free(r driver.Row, before []driver.Row, owner string, order outmill.Order, policy outmill.KeyPolicy,
	now driver.Time) bool {
	over := func(r driver.Row) bool { return r.Expires != 0 && r.Expires <= now }
	leased := func(r driver.Row) bool { return r.Stage == driver.Leased && r.Wake > now }
	dueRow := func(r driver.Row) bool {
		return r.Stage == driver.Ready || r.Stage == driver.Held || r.Stage <= driver.Leased && r.Wake <= now
	}
	if r.Stage >= driver.Processed || over(r) || !dueRow(r) || w.pauses.Topic(group, topic) ||
		w.pauses.Of(group, topic, r.Key, r.Tenant) != 0 {
		return false
	}
	if order == outmill.OrderNone || order == outmill.OrderKey && r.Key == "" {
		return true
	}
	for _, other := range before {
		if other.Line != r.Line || other.ID == r.ID || order == outmill.OrderKey && other.Key != r.Key {
			continue
		}
		if order == outmill.OrderKey && policy == outmill.KeyPark && other.Parked && other.Seq < r.Seq {
			return false
		}
		if other.Stage >= driver.Processed {
			continue
		}
		if leased(other) {
			if other.Owner != owner {
				return false
			}
			continue
		}
		if over(other) || other.Seq > r.Seq {
			continue
		}
		if other.Stage == driver.Waiting && other.Wake > now && policy == outmill.KeySkip || other.Stage == driver.Delayed && other.Wake > now {
			continue
		}
		if other.Stage == driver.Waiting && other.Wake > now {
			return false
		}
		if w.pauses.Of(group, topic, other.Key, other.Tenant) != 0 {
			return false
		}
	}
	return true
}

func (w *longWalk) claim(owner outmill.OwnerToken, order outmill.Order, policy outmill.KeyPolicy, limit, most int) []*outmill.Record {
	w.Helper()
	db := w.h.store.db
	was, from := db.Rows(), db.Now()
	// A claim that goes round and round ends at half the time.
	ctx, stop := context.WithTimeout(w.ctx, 4*time.Minute)
	defer stop()
	began := time.Now()
	partLimit := 0
	if w.fair && w.IntN(3) == 0 {
		partLimit = 1 + w.IntN(3)
	}
	list, err := w.store.Claim(ctx, outmill.ClaimRequest{
		Owner: owner, Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: limit, Lease: time.Minute, Order: order,
		KeyPolicy: policy, MaxBytes: most, PartLimit: partLimit,
	})
	w.note("claim by %v %v %v %d %d %d: %d", slices.Index(w.owners, owner), order, policy, limit, most, partLimit, len(list))
	if err != nil || time.Since(began) > 2*time.Minute {
		w.fail("spins: %v %v", time.Since(began), err)
	}
	until := db.Now()
	w.leases[owner] = append(w.leases[owner], list...)
	got := map[outmill.WorkItemID]bool{}
	for _, r := range list {
		got[r.ID] = true
	}
	last := map[string]int64{}
	bySeq := map[outmill.WorkItemID]driver.Row{}
	for _, r := range was {
		bySeq[r.ID] = r
	}
	others, all := map[string][]driver.Row{}, map[string][]driver.Row{}
	for _, r := range was {
		if r.Stage >= driver.Processed && !r.Parked {
			continue
		}
		at := w.place(r, order)
		if all[at] = append(all[at], r); !got[r.ID] {
			others[at] = append(others[at], r)
		}
	}
	// A row may be taken at some moment of the claim.
	for _, one := range list {
		r := bySeq[one.ID]
		before := others[w.place(r, order)]
		if at := append(wakes(before), r.Wake, from, until); !slices.ContainsFunc(at, func(now driver.Time) bool {
			return now <= until && w.free(r, before, owner.String(), order, policy, now)
		}) {
			w.fail("must not be taken: %+v", r)
		}
		if order == outmill.OrderKey && r.Key != "" {
			at := r.Name() + "/" + r.Key
			if last[at] > r.Seq {
				w.fail("out of order in one claim: %+v", r)
			}
			last[at] = r.Seq
		}
	}
	if len(list) == 0 {
		for _, r := range was {
			before := all[w.place(r, order)]
			if w.free(r, before, owner.String(), order, policy, from) && w.free(r, before, owner.String(), order, policy, until) {
				w.fail("not taken: %+v\nnotes %+v", r, db.Notes())
			}
		}
	}
	return list
}

// wakes are moments at which a claim that admits only some of the due rows may see the others.
func wakes(rows []driver.Row) (at []driver.Time) {
	for _, r := range rows {
		if r.Wake != 0 {
			at = append(at, r.Wake)
		}
	}
	return at
}

// place is where the rows are that matter for the order of the row.
func (w *longWalk) place(r driver.Row, order outmill.Order) string {
	if order == outmill.OrderKey {
		return r.Name() + "/" + r.Key
	}
	return ""
}

func (w *longWalk) check() {
	w.Helper()
	db := w.h.store.db
	type name struct {
		driver.Line
		name string
	}
	notes := map[name]driver.Note{}
	for _, n := range db.Notes() {
		notes[name{n.Line, n.Name}] = n
	}
	for _, r := range db.Rows() {
		if r.Stage != driver.Held {
			continue
		}
		n, known := notes[name{r.Line, r.Under}]
		if !known {
			w.fail("held under no note: %+v", r)
		}
		if n.Head > r.Seq {
			w.fail("the head of %+v is behind %+v", n, r)
		}
	}
}
