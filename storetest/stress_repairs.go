package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// repairs has writers, readers that park the keys of bad records, operators that edit, requeue,
// skip and delete dead records, and somebody who pauses and resumes, all at once on three stores.
//
// Nothing but the head of a parked key may be overtaken, so each key must be handled in the order
// of its appends. Each edit adds a word to the payload, so a lost one shows.
type repairs struct {
	e      *env
	stores []outmill.Store
	// inSteps says that Skip and Requeue work in small steps. One operator at a time works on
	// the records of a key then: a head that is requeued in the middle of its Skip comes after
	// those that the Skip has brought back.
	inSteps bool
	end     context.CancelFunc

	mu      sync.Mutex
	errs    []error
	records map[outmill.WorkItemID]*outmill.Record
	handled map[outmill.WorkItemID]*outmill.Record
	// last is the number of the last record of each key that was handled.
	last map[string]int
	// words are those that edits have added.
	words map[outmill.WorkItemID][]string
	busy  map[string]bool
}

const (
	repairKeys = 5
	// healed is the number of edits after which a bad record can be handled.
	healed = 2
)

func repairsAtOnce(e *env) { repairAtOnce(e, false) }

func repairsInSteps(e *env) { repairAtOnce(e, true) }

func repairAtOnce(e *env, inSteps bool) {
	e.repairs()
	e.repairs()
	w := &repairs{
		e: e, inSteps: inSteps, stores: []outmill.Store{e.Store, e.Reopen(), e.Reopen()},
		records: map[outmill.WorkItemID]*outmill.Record{}, handled: map[outmill.WorkItemID]*outmill.Record{}, last: map[string]int{},
		words: map[outmill.WorkItemID][]string{}, busy: map[string]bool{},
	}
	e.Register(group)
	ctx, stop := context.WithCancel(e.T.Context())
	w.end = stop
	defer stop()
	var writers, others sync.WaitGroup
	for writer := range 2 {
		writers.Go(func() { w.write(ctx, writer) })
	}
	if pauses, ok := outmill.As[roles.Pauses](e.Store); ok {
		writers.Go(func() { w.pauseAndResume(ctx, pauses) })
	}
	for _, store := range w.stores {
		others.Go(func() { w.read(ctx, store) })
		others.Go(func() { w.read(ctx, store) })
		others.Go(func() { w.operate(ctx, store) })
		others.Go(func() { w.tidy(ctx, store) })
	}
	writers.Wait()
	w.drain(ctx)
	stop()
	others.Wait()
	require.NoError(e.T, errors.Join(w.errs...))
	(&stress{e: e}).atRest()
	w.check()
}

// fault ends the test with an error, unless it has ended already.
func (w *repairs) fault(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, fmt.Errorf("%s: %w", what, err))
	w.end()
}

// write appends records, to keys that no other writer uses. Some are rolled back first.
func (w *repairs) write(ctx context.Context, writer int) {
	next := map[string]int{}
	for range 3 * appends() {
		key := fmt.Sprintf("k%d-%d", writer, rand.N(repairKeys))
		next[key]++
		payload := "good"
		if rand.N(8) == 0 {
			payload = "bad"
		}
		for _, kept := range [][]bool{{true}, {false, true}}[rand.N(2)] {
			r := suite.Rec(orders, fmt.Sprintf("%s/%d", key, next[key]), withKeyAndTenant(key, fmt.Sprint("t", rand.N(3))))
			r.Payload = []byte(payload)
			w.append(ctx, r, kept)
		}
	}
}

func (w *repairs) append(ctx context.Context, r *outmill.Record, kept bool) {
	store := w.stores[rand.N(len(w.stores))]
	err := (&stress{e: w.e}).inTx(ctx, store, func(ctx context.Context) error {
		err := store.Append(ctx, r)
		pause(ctx, rand.N(10*time.Millisecond))
		if !kept && err == nil {
			return errThrownAway
		}
		return err
	})
	if !kept && errors.Is(err, errThrownAway) {
		return
	}
	w.fault(ctx, "Append", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[r.ID] = r
}

func (w *repairs) pauseAndResume(ctx context.Context, pauses roles.Pauses) {
	scopes := []roles.PauseScope{
		{Topic: orders, Key: "k0-1"}, {TenantID: "t1"}, {Topic: orders}, {Group: group, TenantID: "t2"}, {Group: group},
		{Group: group, Topic: orders, Key: "k1-0"}, {Topic: orders, TenantID: "t1"},
	}
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < pausingFor(); {
		rand.Shuffle(len(scopes), func(i, j int) { scopes[i], scopes[j] = scopes[j], scopes[i] })
		some := slices.Clone(scopes[:1+rand.N(3)])
		for _, scope := range some {
			w.fault(ctx, "Pause", pauses.Pause(ctx, scope, "ann", ""))
			pause(ctx, rand.N(10*time.Millisecond))
		}
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		for _, scope := range some {
			_, err := pauses.Resume(ctx, scope)
			w.fault(ctx, "Resume", err)
			pause(ctx, rand.N(5*time.Millisecond))
		}
	}
}

func pausingFor() time.Duration {
	if suite.All() {
		return 3 * time.Second
	}
	return 500 * time.Millisecond
}

// read handles records as a worker does: behind a record that it gives back or fails, it gives
// back the later ones of the key.
func (w *repairs) read(ctx context.Context, store outmill.Store) {
	owner := outmill.NewOwnerToken()
	for ctx.Err() == nil {
		found, err := store.Claim(ctx, suite.Request(owner, suite.ParkOrder, suite.Limit(1+rand.N(5))))
		w.fault(ctx, "Claim", err)
		stopped := map[string]bool{}
		for _, r := range found {
			lease := []outmill.Lease{r.Lease()}
			switch {
			case stopped[r.Key]:
				err = store.Release(ctx, lease)
			case isBad(r):
				stopped[r.Key] = true
				err = store.Fail(ctx, suite.Failures(true, "bad", lease))
			case rand.N(10) == 0:
				stopped[r.Key] = true
				err = store.Abandon(ctx, suite.DelayedBy(rand.N(3*time.Millisecond), "again", lease))
			default:
				w.handle(ctx, r)
				err = store.Ack(ctx, suite.Worker, lease)
			}
			w.fault(ctx, "settle", err)
		}
		if len(found) == 0 {
			pause(ctx, 5*time.Millisecond)
		}
	}
}

func isBad(r *outmill.Record) bool {
	words := bytes.Fields(r.Payload)
	return string(words[0]) == "bad" && len(words) <= healed
}

// handle checks the order of the key.
func (w *repairs) handle(ctx context.Context, r *outmill.Record) {
	var n int
	_, err := fmt.Sscanf(r.MessageID[len(r.Key):], "/%d", &n)
	w.fault(ctx, "message id", err)
	w.mu.Lock()
	twice := w.handled[r.ID] != nil
	w.handled[r.ID] = r
	before := w.last[r.Key]
	w.last[r.Key] = n
	w.mu.Unlock()
	if twice || n <= before {
		w.fault(ctx, "order", fmt.Errorf("%s was handled after %s/%d", r.MessageID, r.Key, before))
	}
}

// operate repairs dead letters. Some calls are cut off, as if the process had been killed.
func (w *repairs) operate(ctx context.Context, store outmill.Store) {
	bench, _ := outmill.As[roles.Repairs](store)
	for ctx.Err() == nil {
		page, err := bench.DeadLetters(ctx, outmill.ListQuery{Limit: 20})
		w.fault(ctx, "DeadLetters", err)
		for _, letter := range page.Letters {
			w.repair(ctx, store, bench, letter.Record)
		}
		pause(ctx, 3*time.Millisecond)
	}
}

func (w *repairs) repair(ctx context.Context, store outmill.Store, bench roles.Repairs, r *outmill.Record) {
	if w.inSteps {
		if !w.lock(r.Key) {
			return
		}
		defer w.unlock(r.Key)
		// The page may be older than a Skip that was cut short in the middle.
		now, err := store.Get(ctx, r.ID)
		if err != nil {
			if !errors.Is(err, outmill.ErrNotFound) {
				w.fault(ctx, "Get", err)
			}
			return
		}
		r.LastError = now.LastError
	}
	cut := ctx
	if rand.N(4) == 0 {
		var cancel context.CancelFunc
		cut, cancel = context.WithTimeout(ctx, rand.N(5*time.Millisecond))
		defer cancel()
	}
	var err error
	what := "Skip"
	switch how := rand.N(12); {
	case r.LastError == storekit.SkippedError || how == 0:
		_, err = bench.Skip(cut, r.ID)
	case how == 1:
		what = "DeleteWhere"
		_, err = bench.DeleteWhere(cut, outmill.ListQuery{Status: outmill.StatusDead, MessageID: r.MessageID})
	case how < 5:
		what = "Requeue"
		_, err = store.Requeue(cut, r.ID)
	default:
		what = "Edit"
		err = w.edit(cut, bench, r)
	}
	if errors.Is(err, roles.ErrNotDead) || errors.Is(err, outmill.ErrNotFound) || cut.Err() != nil {
		return
	}
	if cut != ctx && suite.EndedByDeadline(err) {
		return
	}
	w.fault(ctx, what, err)
}

// edit adds a word to the payload.
func (w *repairs) edit(ctx context.Context, bench roles.Repairs, r *outmill.Record) error {
	word := fmt.Sprint(rand.Uint32())
	_, err := bench.Edit(ctx, r.ID, roles.Edit{Seen: storekit.FingerprintOf(r), Payload: fmt.Appendf(slices.Clone(r.Payload), " %s", word)})
	if errors.Is(err, roles.ErrRecordChanged) {
		return nil
	}
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.words[r.ID] = append(w.words[r.ID], word)
	}
	return err
}

func (w *repairs) lock(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[key] {
		return false
	}
	w.busy[key] = true
	return true
}

func (w *repairs) unlock(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, key)
}

func (w *repairs) tidy(ctx context.Context, store outmill.Store) {
	for ctx.Err() == nil {
		began := time.Now()
		_, err := store.ReapExpired(ctx, 5)
		w.fault(ctx, "ReapExpired", err)
		_, err = store.ExpireDue(ctx, 50)
		w.fault(ctx, "ExpireDue", err)
		_, err = store.Maintain(ctx)
		w.fault(ctx, "Maintain", err)
		rest(ctx, began)
	}
}

// drain waits until nothing is pending, leased or dead. It fails if the number does not fall for
// stuckAfter.
func (w *repairs) drain(ctx context.Context) {
	left, since := -1, time.Now()
	for ctx.Err() == nil {
		now, err := countOf(ctx, w.e.Store, outmill.StatusPending, outmill.StatusLeased, outmill.StatusDead)
		w.fault(ctx, "count unsettled records", err)
		if now == 0 && err == nil {
			return
		}
		if left < 0 || now < left {
			left, since = now, time.Now()
		}
		if time.Since(since) > stuckAfter {
			w.fault(ctx, "drain", fmt.Errorf("%d records are stuck: %q", now, (&stress{e: w.e}).stuck()))
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// check compares the audit with what became of the records.
func (w *repairs) check() {
	t := w.e.T
	// A slow machine may need longer than the patience of e.
	entries := (&env{w.e.Under(t.Context())}).audited()
	slices.Reverse(entries)
	fingerprints, removed := map[outmill.WorkItemID]string{}, 0
	for id, r := range w.records {
		fingerprints[id] = storekit.FingerprintOf(r)
	}
	for _, entry := range entries {
		if entry.Action == roles.AuditDelete {
			removed += entry.Count
		}
		if entry.Action != roles.AuditEdit && entry.Action != roles.AuditSkip {
			continue
		}
		id := entry.IDs[0]
		name := w.records[id].MessageID
		require.Equal(t, fingerprints[id], entry.Before.Fingerprint, "an edit of %s is lost, or has no entry", name)
		if entry.Action == roles.AuditEdit {
			fingerprints[id] = entry.After.Fingerprint
		}
		if entry.After.Status == roles.AuditDeleted {
			removed++
			require.Nil(t, w.handled[id], "%s was skipped, and handled", name)
		}
	}
	require.Equal(t, len(w.records)-len(w.handled), removed, "each record that was not handled was skipped or deleted")
	for id, r := range w.handled {
		require.Equal(t, fingerprints[id], storekit.FingerprintOf(r), "%s differs from the last edit of it", r.MessageID)
		for _, word := range w.words[id] {
			require.Contains(t, string(r.Payload), word, "an edit of %s is lost", r.MessageID)
		}
	}
}
