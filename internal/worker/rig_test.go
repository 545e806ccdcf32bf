package worker_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/sqlite"
)

const (
	// soon is long enough for every expected event, even on a busy machine.
	soon = 20 * time.Second
	// tick is the time between two checks of a test.
	tick = 2 * time.Millisecond
	// never is longer than any test.
	never = time.Hour

	topic = "orders"
)

// rig is a store for one test, with the default group registered for all topics, and faults
// to inject.
type rig struct {
	*testing.T
	store *faulty
}

func newRig(t *testing.T) *rig {
	t.Helper()
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), file, sqlite.Config{BusyTimeout: soon}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
	return &rig{t, &faulty{Store: store, before: map[string]fault{}, after: map[string]fault{}}}
}

// append writes one record for each word, with the word as message id. "k:1"
// has the key k.
func (r *rig) append(words ...string) []*outmill.Record {
	r.Helper()
	records := make([]*outmill.Record, len(words))
	for i, word := range words {
		key, _, ok := strings.Cut(word, ":")
		if !ok {
			key = ""
		}
		records[i] = &outmill.Record{MessageID: word, Topic: topic, Key: key}
	}
	require.NoError(r, r.store.Append(context.WithoutCancel(r.Context()), records...))
	return records
}

func config(queue outmill.Queue) worker.Config {
	return worker.Config{
		Queue:           queue,
		Logger:          watermill.NopLogger{},
		Retry:           outmill.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
		BatchSize:       10,
		MaxItems:        20,
		MaxBytes:        1 << 20,
		Lease:           soon,
		MaxProcessing:   never,
		PollInterval:    20 * time.Millisecond,
		MaxErrorBackoff: 20 * time.Millisecond,
		FlushInterval:   time.Millisecond,
		Running:         worker.NewRegistry(),
	}
}

// start runs a worker over the rig's store until the test ends.
func (r *rig) start(change func(*worker.Config)) *worker.Worker {
	r.Helper()
	cfg := config(r.store)
	if change != nil {
		change(&cfg)
	}
	w := worker.New(cfg)
	w.Start(context.WithoutCancel(r.Context()))
	r.Cleanup(func() {
		r.store.heal()
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			r.Error(err)
		}
	})
	return w
}

// take returns the next item.
func (r *rig) take(w *worker.Worker) *worker.Item {
	r.Helper()
	return r.takeN(w, 1)[0]
}

// handlesInOrder takes and acks the records of these names, one after the other.
func (r *rig) handlesInOrder(w *worker.Worker, want ...string) {
	r.Helper()
	for _, name := range want {
		it := r.take(w)
		require.Equal(r, name, it.Record.MessageID)
		it.Ack()
	}
}

func (r *rig) takeN(w *worker.Worker, n int) []*worker.Item {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), soon)
	defer cancel()
	var items []*worker.Item
	for len(items) < n {
		more, err := w.Take(ctx, n-len(items))
		require.NoError(r, err, "took %d of %d items", len(items), n)
		items = append(items, more...)
	}
	return items
}

// takesNothing checks for a short time that no item comes. It cannot prove that none comes
// later.
func (r *rig) takesNothing(w *worker.Worker) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
	defer cancel()
	items, err := w.Take(ctx, 1)
	require.ErrorIs(r, err, context.DeadlineExceeded, "took %v", names(items))
}

func names(items []*worker.Item) []string {
	list := make([]string, len(items))
	for i, it := range items {
		list[i] = it.Record.MessageID
	}
	return list
}

// get returns the record, or nil if it does not exist.
func (r *rig) get(rec *outmill.Record) *outmill.Record {
	r.Helper()
	found, err := r.store.Get(context.WithoutCancel(r.Context()), rec.ID)
	if err != nil {
		require.ErrorIs(r, err, outmill.ErrNotFound)
		return nil
	}
	return found
}

func (r *rig) eventually(what string, condition func() bool) {
	r.Helper()
	require.Eventually(r, condition, soon, tick, what)
}

// claimedAgain waits until a worker knows that it has claimed the record of the item again. Claims follow each other, so the
// next one begins when the worker has read the answer.
func (r *rig) claimedAgain(rec *outmill.Record, it *worker.Item) {
	r.Helper()
	r.eventually("the record is claimed again", func() bool { return r.get(rec).Claims > it.Record.Claims })
	claims := r.store.called("Claim")
	r.eventually("the answer of the claim is read", func() bool { return r.store.called("Claim") > claims })
}

func (r *rig) eventuallyGone(records ...*outmill.Record) {
	r.Helper()
	for _, rec := range records {
		r.eventually(rec.MessageID+" is acked", func() bool { return r.get(rec) == nil })
	}
}

func (r *rig) eventuallyStatus(rec *outmill.Record, status outmill.Status) *outmill.Record {
	r.Helper()
	var found *outmill.Record
	r.eventually(rec.MessageID+" is "+string(status), func() bool {
		found = r.get(rec)
		return found != nil && found.Status == status
	})
	return found
}

// exec changes the store's tables, to simulate passed time or a crash.
func (r *rig) exec(query string, args ...any) {
	r.Helper()
	_, err := r.store.DB().ExecContext(r.Context(), query, args...)
	require.NoError(r, err)
}

// endLease ends the lease of the record now, by the database's clock.
func (r *rig) endLease(rec *outmill.Record) {
	r.Helper()
	r.exec(`UPDATE outmill_records SET wake_at = 1 WHERE id = ? AND stage = 4`, rec.ID)
}

// claimsInVain waits for some claims beside a lease whose answer was lost, and ends that lease.
func (r *rig) claimsInVain(rec *outmill.Record) {
	r.Helper()
	r.eventuallyStatus(rec, outmill.StatusLeased)
	claims := r.store.called("Claim")
	r.eventually("more claims end", func() bool { return r.store.called("Claim") > claims+2 })
	r.endLease(rec)
}

// fault gets the context of a call, and returns the error of the call.
type fault func(ctx context.Context) error

// faulty is a real store whose calls fail on request: before their execution, or after it,
// as if the answer were lost.
type faulty struct {
	*sqlite.Store

	mu            sync.Mutex
	before, after map[string]fault
	calls         map[string]int
	// claims are the requests of all claims.
	claims []outmill.ClaimRequest
	held   *heldClaim
	// shorten returns the records that a claim returns together with an error.
	shorten func(records []*outmill.Record) []*outmill.Record
}

// heldClaim is a claim that the store has executed and whose answer has not arrived yet.
type heldClaim struct{ answered, answer chan struct{} }

// holdClaim delays the answer of the next claim that finds a record.
func (r *rig) holdClaim() (answered <-chan struct{}, release func()) {
	held := &heldClaim{make(chan struct{}), make(chan struct{})}
	r.store.mu.Lock()
	r.store.held = held
	r.store.mu.Unlock()
	release = sync.OnceFunc(func() { close(held.answer) })
	r.Cleanup(release)
	return held.answered, release
}

func (f *faulty) holdAnswer() {
	f.mu.Lock()
	held := f.held
	f.held = nil
	f.mu.Unlock()
	if held != nil {
		close(held.answered)
		<-held.answer
	}
}

func (f *faulty) failBefore(call string, fn fault) { f.set(f.before, call, fn) }

func (f *faulty) failAfter(call string, fn fault) { f.set(f.after, call, fn) }

func (f *faulty) set(faults map[string]fault, call string, fn fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults[call] = fn
}

// heal ends all faults.
func (f *faulty) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.before)
	clear(f.after)
}

func (f *faulty) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *faulty) around(ctx context.Context, call string, carryOut func() error) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[call]++
	before := f.before[call]
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return err
		}
	}
	err := carryOut()
	f.mu.Lock()
	after := f.after[call]
	f.mu.Unlock()
	if err == nil && after != nil {
		err = after(ctx)
	}
	return err
}

func (f *faulty) Claim(ctx context.Context, req outmill.ClaimRequest) (records []*outmill.Record, err error) {
	f.mu.Lock()
	f.claims = append(f.claims, req)
	f.mu.Unlock()
	err = f.around(ctx, "Claim", func() error {
		records, err = f.Store.Claim(ctx, req)
		return err
	})
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.shorten == nil {
			return nil, err
		}
		return f.shorten(records), err
	}
	if len(records) > 0 {
		f.holdAnswer()
	}
	return records, nil
}

func (f *faulty) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) (standing []outmill.Lease, err error) {
	err = f.around(ctx, "Extend", func() error {
		standing, err = f.Store.Extend(ctx, lease, leases)
		return err
	})
	return standing, err
}

func (f *faulty) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	return f.around(ctx, "Ack", func() error { return f.Store.Ack(ctx, by, leases) })
}

func (f *faulty) Abandon(ctx context.Context, list []outmill.Settlement) error {
	return f.around(ctx, "Abandon", func() error { return f.Store.Abandon(ctx, list) })
}

func (f *faulty) Fail(ctx context.Context, list []outmill.Settlement) error {
	return f.around(ctx, "Fail", func() error { return f.Store.Fail(ctx, list) })
}

func (f *faulty) Release(ctx context.Context, leases []outmill.Lease) error {
	return f.around(ctx, "Release", func() error { return f.Store.Release(ctx, leases) })
}

func (f *faulty) Snooze(ctx context.Context, list []outmill.Settlement) error {
	return f.around(ctx, "Snooze", func() error { return f.Store.Snooze(ctx, list) })
}

func (f *faulty) ReapExpired(ctx context.Context, limit int) (reaped int, err error) {
	err = f.around(ctx, "ReapExpired", func() error {
		reaped, err = f.Store.ReapExpired(ctx, limit)
		return err
	})
	return reaped, err
}
