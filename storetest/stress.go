package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func stressSentences() []sentence {
	return []sentence{
		{"whatever is done at once, each message is handled once, and keys keep their order", underStress},
		{"repairs of dead records and pauses at once lose no record and no edit, and keys keep their order", repairsAtOnce},
	}
}

// stuckAfter is how long records may stay unsettled without any progress, even on a busy
// machine.
var stuckAfter = time.Minute

// stress runs many goroutines that call three stores on one database at random, and has a
// ledger of the expected outcome. Records with keys that begin with safe are never deleted or
// failed, and never expire; records with keys that begin with unsafe may be.
type stress struct {
	*ledger
	e      *env
	stores []outmill.Store
	groups []readers
}

const (
	safe   = 'p'
	unsafe = 'x'
)

// readers has a group and its way of claiming.
type readers struct {
	name   string
	order  outmill.Order
	policy outmill.KeyPolicy
}

// passing is a group that is dropped and registered again while others work. It need not
// handle any record, but none of its records may stay unsettled.
var passing = readers{"passing", outmill.OrderKey, outmill.KeySkip}

func underStress(e *env) {
	w := &stress{ledger: newLedger(), e: e, stores: []outmill.Store{e.Store, e.Reopen(), e.Reopen()}, groups: []readers{
		{group, outmill.OrderKey, outmill.KeyBlock},
		{"parkers", outmill.OrderKey, outmill.KeyPark},
		{"skippers", outmill.OrderKey, outmill.KeySkip},
		{"topics", outmill.OrderTopic, outmill.KeyBlock},
		{"any", outmill.OrderNone, outmill.KeyBlock},
	}}
	// A long walk may outlast the patience of e.
	ctx, stop := context.WithCancel(e.T.Context())
	defer stop()
	var writers, others sync.WaitGroup
	for writer := range 4 {
		writers.Go(func() { w.write(ctx, writer, appends()) })
	}
	w.registerAll(ctx)
	w.readAndDisturb(ctx, &others)
	writers.Wait()
	w.writing.Store(false)
	w.drain(ctx)
	stop()
	others.Wait()
	w.atRest()
	w.audit(w.groups)
}

// appends is the number of appends of each writer.
func appends() int {
	switch {
	case !suite.All():
		return 15
	case suite.Brief():
		return 30
	}
	return 60
}

// registerAll registers the groups when some records wait for one, while transactions with records are open.
func (w *stress) registerAll(ctx context.Context) {
	for w.keptSoFar() < 5 && ctx.Err() == nil {
		pause(ctx, time.Millisecond)
	}
	w.reach(ctx, registering)
	w.register(ctx, w.groups[0])
	w.reach(ctx, firstRegistered)
	for _, g := range w.groups[1:] {
		w.register(ctx, g)
	}
	w.reach(ctx, allRegistered)
	// The group gets the records of transactions that were open when it registers again.
	w.register(ctx, w.groups[0])
}

func (w *stress) readAndDisturb(ctx context.Context, others *sync.WaitGroup) {
	for _, g := range w.groups {
		others.Go(func() { w.die(ctx, g) })
		for range 2 {
			others.Go(func() { w.read(ctx, g) })
		}
	}
	for range 2 {
		others.Go(func() { w.read(ctx, passing) })
	}
	others.Go(func() { w.comeAndGo(ctx) })
	others.Go(func() { w.operate(ctx) })
	others.Go(func() { w.tidy(ctx) })
	if h, ok := w.e.Harness.(Watcher); ok {
		others.Go(func() { h.Watch(ctx, func(err error) { w.failed("watch", err) }) })
	}
}

// store returns one of the stores at random.
func (w *stress) store() outmill.Store { return w.stores[rand.N(len(w.stores))] }

func (w *stress) register(ctx context.Context, g readers) {
	w.failed("RegisterGroup", w.store().RegisterGroup(ctx, outmill.Registration{Group: g.name}))
}

// comeAndGo registers and drops a group.
func (w *stress) comeAndGo(ctx context.Context) {
	for ctx.Err() == nil && w.writing.Load() {
		w.register(ctx, passing)
		pause(ctx, rand.N(100*time.Millisecond))
		w.dropping(passing)
		_, err := w.store().DropGroup(ctx, passing.name)
		w.failed("DropGroup", err)
		w.dropping(passing)
	}
}

// operate deletes unsafe records, and requeues dead ones.
func (w *stress) operate(ctx context.Context) {
	for ctx.Err() == nil && w.writing.Load() {
		store, began := w.store(), time.Now()
		found, err := store.List(ctx, outmill.ListQuery{Limit: 1000})
		w.failed("List", err)
		var doomed, dead []outmill.WorkItemID
		for _, r := range found {
			switch {
			case r.Status == outmill.StatusDead:
				dead = append(dead, r.ID)
			case r.Key[0] == unsafe && rand.N(100) == 0:
				doomed = append(doomed, r.ID)
			}
		}
		_, err = store.Delete(ctx, doomed...)
		w.failed("Delete", err)
		if rand.N(3) == 0 && len(dead) > 0 {
			_, err = store.Requeue(ctx, dead[:1+rand.N(len(dead))]...)
			w.failed("Requeue", err)
		}
		rest(ctx, began)
	}
}

// tidy does the work of a janitor.
func (w *stress) tidy(ctx context.Context) {
	for ctx.Err() == nil {
		store, began := w.store(), time.Now()
		_, err := store.ReapExpired(ctx, 5)
		w.failed("ReapExpired", err)
		_, err = store.ExpireDue(ctx, 50)
		w.failed("ExpireDue", err)
		_, err = store.Maintain(ctx)
		w.failed("Maintain", err)
		rest(ctx, began)
	}
}

// drain waits until all records are settled. It fails if the number of unsettled records does
// not fall for stuckAfter.
func (w *stress) drain(ctx context.Context) {
	left := w.unsettled(ctx)
	for since, began := time.Now(), time.Now(); left > 0; {
		rest(ctx, began)
		began = time.Now()
		now := w.unsettled(ctx)
		if now < left {
			since = time.Now()
		}
		left = now
		if time.Since(since) > stuckAfter {
			w.blame("%d records are stuck: %q", left, w.stuck())
			return
		}
	}
}

func (w *stress) unsettled(ctx context.Context) int {
	n, err := countOf(ctx, w.e.Store, outmill.StatusPending, outmill.StatusLeased)
	w.failed("count unsettled records", err)
	return n
}

// countOf counts the records that have one of the statuses. Zero means that none had when countOf
// began, provided that all other statuses are final. The counts of one Stats need not be of one
// moment, so a record that moves between two of them may be in neither. A record never changes its
// id, so a list by id does not miss it.
func countOf(ctx context.Context, store outmill.Store, statuses ...outmill.Status) (n int, err error) {
	stats, err := store.Stats(ctx, 0)
	if err != nil {
		return 0, err
	}
	for _, s := range stats {
		counts := map[outmill.Status]int{outmill.StatusPending: s.Pending, outmill.StatusLeased: s.Leased, outmill.StatusDead: s.Dead}
		for _, status := range statuses {
			n += counts[status]
		}
	}
	if n > 0 {
		return n, nil
	}
	all, err := suite.TryListAll(ctx, store, outmill.ListQuery{})
	for _, r := range all {
		if slices.Contains(statuses, r.Status) {
			n++
		}
	}
	return n, err
}

// stuck names some of the records that are not settled.
func (w *stress) stuck() []string {
	var list []string
	for _, r := range w.e.List(outmill.ListQuery{}) {
		if len(list) < 5 && (r.Status == outmill.StatusPending || r.Status == outmill.StatusLeased) {
			list = append(list, fmt.Sprintf("%s of group %q is %s, next attempt at %s, lease until %s", r.MessageID, r.Group, r.Status,
				r.NextAttemptAt, r.LeaseUntil))
		}
	}
	return list
}

// atRest asks the harness whether the store still keeps state about settled records.
func (w *stress) atRest() {
	h, ok := w.e.Harness.(Watcher)
	if !ok {
		return
	}
	require.Eventually(w.e.T, func() bool { return h.AtRest() == nil }, stuckAfter, 20*time.Millisecond, "the store does not come to rest")
	require.NoError(w.e.T, h.AtRest())
}

// rest pauses a goroutine that calls the store repeatedly. The pause grows with the
// time that its calls take, so that a slow engine has time for the calls of others.
func rest(ctx context.Context, since time.Time) { pause(ctx, 10*time.Millisecond+2*time.Since(since)) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
