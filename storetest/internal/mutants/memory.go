package mutants

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
	"github.com/outmill/outmill/storetest/memstore"
)

// Memory is a sound store in memory, for mutants to embed. Many of its transactions can be
// open at the same time. Stores on one database share their hooks.
type Memory struct {
	*memstore.Store
	DB      *memstore.Database
	options memstore.Options
	hooks   *hooks
}

// hooks run when transactions end.
type hooks struct {
	mu sync.Mutex
	// before runs before a transaction commits.
	before map[*memstore.Tx][]func() error
	// lost is the error that the next commit returns.
	lost error
}

// memory is implemented by stores that wrap a Memory.
type memory interface{ inner() Memory }

func (m Memory) inner() Memory { return m }

// BeforeCommit runs fn before the transaction of ctx commits.
func (m Memory) BeforeCommit(ctx context.Context, fn func() error) {
	tx, _ := m.Tx(ctx)
	m.hooks.mu.Lock()
	defer m.hooks.mu.Unlock()
	m.hooks.before[tx] = append(m.hooks.before[tx], fn)
}

// Commit runs the functions of BeforeCommit and commits the transaction. It returns ErrLost if
// the answer must be lost.
func (m Memory) Commit(tx *memstore.Tx) error {
	m.hooks.mu.Lock()
	before, lost := m.hooks.before[tx], m.hooks.lost
	m.hooks.lost = nil
	m.hooks.mu.Unlock()
	for _, fn := range before {
		if err := fn(); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return errors.Join(tx.Commit(), lost)
}

var (
	// ErrLost says that the answer to a commit was lost.
	ErrLost = storekit.CommitInDoubt(errors.New("the answer to the commit was lost"))
	// ErrPasses is an error after which a store runs the transaction again.
	ErrPasses = errors.New("deadlock")
)

// Transact is sound, and knows ErrPasses and ErrLost.
func (m Memory) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	tx, err := m.TxOf(ctx)
	if fn == nil || tx != nil || err != nil && !errors.Is(err, outmill.ErrForeignTx) {
		return m.Store.Transact(ctx, fn)
	}
	return m.Repeat(func() error { return m.Once(ctx, fn) })
}

// Repeat runs fn again after ErrPasses, five times at most.
func (Memory) Repeat(fn func() error) (err error) {
	for range 5 {
		if err = fn(); !errors.Is(err, ErrPasses) {
			break
		}
	}
	return err
}

// Once runs fn in a transaction, and commits.
func (m Memory) Once(ctx context.Context, fn func(ctx context.Context) error) error {
	tx := m.DB.Begin()
	defer func() { _ = tx.Rollback() }()
	err := fn(m.WithTx(ctx, tx))
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return m.Commit(tx)
}

// memoryHarness is a suite.Harness whose stores change has made.
type memoryHarness struct {
	t      *testing.T
	memory Memory
	store  outmill.Store
	change func(Memory) outmill.Store
}

// InMemory makes harnesses of mutants.
func InMemory(change func(Memory) outmill.Store) func(*testing.T, suite.Options) suite.Harness {
	return func(t *testing.T, options suite.Options) suite.Harness {
		t.Helper()
		m := newMemory(t, memstore.NewDatabase(), memstore.Options{Retain: options.Retain, DedupWindow: options.DedupWindow},
			&hooks{before: map[*memstore.Tx][]func() error{}})
		if !options.NoSchema {
			require.NoError(t, m.Ensure(t.Context()))
		}
		return &memoryHarness{t, m, change(m), change}
	}
}

func newMemory(t *testing.T, db *memstore.Database, options memstore.Options, shared *hooks) Memory {
	m := Memory{memstore.New(db, options), db, options, shared}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func (h *memoryHarness) Store() outmill.Store { return h.store }

func (h *memoryHarness) Reopen() outmill.Store {
	return h.change(newMemory(h.t, h.memory.DB, h.memory.options, h.memory.hooks))
}

func (h *memoryHarness) Elapse(_ outmill.Store, d time.Duration) { h.memory.DB.Elapse(d) }

func (h *memoryHarness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	m := store.(memory).inner()
	tx := m.DB.Begin()
	h.t.Cleanup(func() { _ = tx.Rollback() })
	return m.WithTx(h.t.Context(), tx), func() error { return m.Commit(tx) }, tx.Rollback
}

// GuardSagas is that of storetest.Guarded.
func (h *memoryHarness) GuardSagas(_ outmill.Store, kind, field string) {
	h.memory.DB.GuardSagas(kind, field)
}

// EndTx is that of storetest.TxEnder.
func (h *memoryHarness) EndTx(outmill.Store) []suite.TxEnd {
	end := func(by func(*memstore.Tx) error) func(ctx context.Context) {
		return func(ctx context.Context) {
			tx, ok := h.memory.Tx(ctx)
			require.True(h.t, ok)
			require.NoError(h.t, by(tx))
		}
	}
	return []suite.TxEnd{
		{Name: "a rollback", End: end((*memstore.Tx).Rollback)},
		{Name: "a commit", Commits: true, End: end(h.memory.Commit)},
	}
}

// Passing is that of storetest.Repeater.
func (*memoryHarness) Passing(context.Context, outmill.Store) error { return ErrPasses }

// Doubtful is that of storetest.Doubtful.
func (h *memoryHarness) Doubtful() outmill.Store {
	h.memory.hooks.mu.Lock()
	defer h.memory.hooks.mu.Unlock()
	h.memory.hooks.lost = ErrLost
	return h.store
}

// Tap is that of storetest.Wired. Each call of a Memory is a round trip that sends the arguments
// of the caller.
func (*memoryHarness) Tap(ctx context.Context) (tapped context.Context, sent func() [][]any) {
	t := &trips{}
	return context.WithValue(ctx, tripsKey{}, t), t.list
}

type tripsKey struct{}

type trips struct {
	mu   sync.Mutex
	sent [][]any
}

func (t *trips) list() [][]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.sent)
}

// send notes a round trip.
func send(ctx context.Context, values ...any) {
	if t, ok := ctx.Value(tripsKey{}).(*trips); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sent = append(t.sent, values)
	}
}

// Append is one round trip.
func (m Memory) Append(ctx context.Context, records ...*outmill.Record) error {
	var values []any
	for _, r := range records {
		if r != nil {
			values = append(values, r.DueAt, r.ExpiresAt)
		}
	}
	send(ctx, values...)
	return m.Store.Append(ctx, records...)
}

// Extend is one round trip.
func (m Memory) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	send(ctx, lease)
	return m.Store.Extend(ctx, lease, leases)
}

// Ack is one round trip.
func (m Memory) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	send(ctx, by)
	return m.Store.Ack(ctx, by, leases)
}

// Abandon is one round trip.
func (m Memory) Abandon(ctx context.Context, list []outmill.Settlement) error {
	send(ctx)
	return m.Store.Abandon(ctx, list)
}

// Fail is one round trip.
func (m Memory) Fail(ctx context.Context, list []outmill.Settlement) error {
	send(ctx)
	return m.Store.Fail(ctx, list)
}

// Release is one round trip.
func (m Memory) Release(ctx context.Context, leases []outmill.Lease) error {
	send(ctx)
	return m.Store.Release(ctx, leases)
}

// Snooze is one round trip.
func (m Memory) Snooze(ctx context.Context, list []outmill.Settlement) error {
	send(ctx)
	return m.Store.Snooze(ctx, list)
}
