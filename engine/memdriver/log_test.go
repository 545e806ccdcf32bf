package memdriver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
)

// A log keeps no state beside a row. A lease is one entry for a whole batch: owner, worker, end. What else changes moves
// the row to a table, which costs as much as the append. So these sentences say which changes the engine may make
// of a row that nothing special happens to, and logged checks each against what a log could say of the row.

// logged is a driver that knows which rows a log could still have.
type logged struct {
	driver.DB
	mu     sync.Mutex
	inLog  map[outmill.WorkItemID]bool
	leases int
	moved  map[string]int
}

func (l *logged) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return l.DB.Update(ctx, begin, func(t driver.Tx) error { return fn(&loggedTx{t, l}) })
}

type loggedTx struct {
	driver.Tx
	log *logged
}

// Insert puts the rows into the log that have nothing but content.
func (t *loggedTx) Insert(ctx context.Context, rows []driver.NewRow) error {
	if err := t.Tx.Insert(ctx, rows); err != nil {
		return err
	}
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	for _, r := range rows {
		t.log.inLog[r.ID] = r.Row == bare(r.Row)
	}
	return nil
}

// bare is what a log says of a row that is in no batch.
func bare(r driver.Row) driver.Row {
	return driver.Row{
		Seq: r.Seq, ID: r.ID, Line: r.Line, Key: r.Key, Tenant: r.Tenant, Created: r.Created, Next: r.Created, Size: r.Size,
		Stage: driver.Ready,
	}
}

// inBatch is what a log says of a row that is in a batch.
func inBatch(r driver.Row) driver.Row {
	b := bare(r)
	b.Stage, b.Claims, b.Owner, b.Worker, b.Wake = driver.Leased, 1, r.Owner, r.Worker, r.Wake
	return b
}

func (t *loggedTx) Apply(ctx context.Context, c driver.Changes) (driver.Applied, error) {
	done, err := t.Tx.Apply(ctx, c)
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	for _, change := range c.Rows {
		now := change.Now
		switch {
		case err != nil || done.Lost[now.ID] || !t.log.inLog[now.ID]:
		case now == inBatch(now):
			t.log.leases++
		case now != bare(now):
			t.log.inLog[now.ID] = false
			t.log.moved[fmt.Sprintf("%s, stage %d to %d", change.Now.Key, change.Was.Stage, change.Now.Stage)]++
		}
	}
	return done, err
}

func (l *logged) moves() (n int) {
	for _, count := range l.moved {
		n += count
	}
	return n
}

// logWorld is a store on a logged driver, which has three records of each of two keys.
type logWorld struct {
	*testing.T
	store *engine.Engine
	log   *logged
	db    *memdriver.Database
}

func newLogWorld(t *testing.T) *logWorld {
	db := memdriver.New()
	log := &logged{DB: memdriver.Driver{Database: db}, inLog: map[outmill.WorkItemID]bool{}, moved: map[string]int{}}
	w := &logWorld{t, engine.New(log, engine.Config{Name: "memory"}), log, db}
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	require.NoError(t, w.store.Ensure(t.Context()))
	require.NoError(t, w.store.RegisterGroup(t.Context(), outmill.Registration{Group: "g"}))
	for i := range 6 {
		require.NoError(t, w.store.Append(t.Context(), &outmill.Record{Topic: "orders", Key: []string{"a", "b"}[i%2], MessageID: fmt.Sprint(i)}))
	}
	return w
}

func (w *logWorld) claim(order outmill.Order, limit int) (claimed []*outmill.Record) {
	owner := outmill.NewOwnerToken()
	for {
		found, err := w.store.Claim(w.Context(), outmill.ClaimRequest{
			Owner: owner, Group: "g", Limit: limit - len(claimed), Lease: time.Minute, Order: order, KeyPolicy: outmill.KeyBlock, Worker: "w",
		})
		require.NoError(w, err)
		if claimed = append(claimed, found...); len(found) == 0 || len(claimed) == limit {
			return claimed
		}
	}
}

func leasesOf(records []*outmill.Record) (leases []outmill.Lease) {
	for _, r := range records {
		leases = append(leases, r.Lease())
	}
	return leases
}

func (w *logWorld) ack(records []*outmill.Record) {
	require.NoError(w, w.store.Ack(w.Context(), "w", leasesOf(records)))
}

func TestLogMoves(t *testing.T) {
	t.Parallel()
	retry := func(w *logWorld, records []*outmill.Record, delay time.Duration) {
		list := make([]outmill.Settlement, len(records))
		for i, l := range leasesOf(records) {
			list[i] = outmill.Settlement{Lease: l, Delay: delay, Err: "later"}
		}
		require.NoError(w, w.store.Abandon(w.Context(), list))
	}
	for name, c := range map[string]struct {
		run    func(w *logWorld)
		leases int // times that a row was leased or its lease was extended
		moves  int
	}{
		"a claim and an ack move nothing":              {func(w *logWorld) { w.ack(w.claim(outmill.OrderNone, 10)) }, 6, 0},
		"a claim by key that gets all moves nothing":   {func(w *logWorld) { w.ack(w.claim(outmill.OrderKey, 10)) }, 6, 0},
		"a claim by topic that gets all moves nothing": {func(w *logWorld) { w.ack(w.claim(outmill.OrderTopic, 10)) }, 6, 0},
		"claims by key one after the other move nothing": {func(w *logWorld) {
			for range 3 {
				w.ack(w.claim(outmill.OrderKey, 2))
			}
		}, 6, 0},
		"an extension of a batch moves nothing": {func(w *logWorld) {
			claimed := w.claim(outmill.OrderKey, 10)
			extended, err := w.store.Extend(w.Context(), time.Hour, leasesOf(claimed))
			require.NoError(w, err)
			require.Len(w, extended, 6)
			w.ack(claimed)
		}, 12, 0},
		"what a stop gives back goes on as if it was never claimed, but for its claims": {func(w *logWorld) {
			require.NoError(w, w.store.Release(w.Context(), leasesOf(w.claim(outmill.OrderKey, 10))))
			w.ack(w.claim(outmill.OrderKey, 10))
		}, 6, 6},
		"a claim by key moves what waits behind the batch of another owner": {func(w *logWorld) {
			first := w.claim(outmill.OrderKey, 2)
			require.Empty(w, w.claim(outmill.OrderKey, 10))
			w.ack(first)
			w.ack(w.claim(outmill.OrderKey, 10))
		}, 2, 4},
		"a retry moves one, and what waits behind it": {func(w *logWorld) {
			claimed := w.claim(outmill.OrderKey, 1)
			retry(w, claimed, time.Hour)
			w.ack(w.claim(outmill.OrderKey, 10))
		}, 4, 3},
		"a retry without an order moves one": {func(w *logWorld) {
			retry(w, w.claim(outmill.OrderNone, 1), time.Hour)
			w.ack(w.claim(outmill.OrderNone, 10))
		}, 6, 1},
		"the end of a lease moves the batch": {func(w *logWorld) {
			w.claim(outmill.OrderKey, 2)
			w.db.Elapse(time.Hour)
			w.ack(w.claim(outmill.OrderKey, 10))
		}, 6, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newLogWorld(t)
			c.run(w)
			require.Equal(t, c.moves, w.log.moves(), "moved: %v", w.log.moved)
			require.Equal(t, c.leases, w.log.leases, "leases in batches")
		})
	}
}
