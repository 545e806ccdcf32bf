package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

// OUTMILL_LOG_CHECK sets how long the writers of the checker write, such as 20s. Default 5s;
// always 1s under -short.
const logCheckVariable = "OUTMILL_LOG_CHECK"

const (
	checkWriters = 12
	checkKeys    = 10
	checkHuge    = 3000
	// noProgress is how long claimers that find nothing continue while messages are missing.
	noProgress = time.Minute
)

var checkTopics = []string{"a", "b", "c"}

func logCheckFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(logCheckVariable)
	switch {
	case text == "" && !testenv.All():
		return time.Second
	case text == "":
		return 5 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, logCheckVariable)
	return d
}

func TestStore_LogChecker(t *testing.T) {
	t.Parallel()

	// Writers take their ids early or late, sleep, roll back savepoints or the whole
	// transaction, and write many records at once. Two groups read the committed records, one
	// without an order, one by key, each with two claimers that settle in every way. A row for
	// each key serialises its writers and counts: the nth record of a key must be the nth that
	// is handed out.
	t.Run("in a log nothing is lost or given twice or out of order", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		execute(t, r.db, `CREATE TABLE counters (key text PRIMARY KEY, n integer NOT NULL)`)
		execute(t, r.db, `INSERT INTO counters SELECT 'key' || k, 0 FROM generate_series(0, $1 - 1) AS k`, checkKeys)

		c := &checker{db: r.db, store: r.store.Store, until: time.Now().Add(logCheckFor(t)), committed: map[string]bool{}}
		c.groups = []*checkedGroup{{c: c, name: "unordered"}, {c: c, name: "by key", order: outmill.OrderKey}}
		_, err := r.store.DropGroup(t.Context(), readers)
		require.NoError(t, err)
		for _, g := range c.groups {
			g.hands, g.next = map[string]whereabouts{}, map[string]int{}
			g.held = map[string]map[outmill.OwnerToken]int{}
			require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: g.name}))
		}

		writing, whileWriting := errgroup.WithContext(t.Context())
		for range checkWriters {
			writing.Go(func() error { return c.write(whileWriting) })
		}
		claiming, whileClaiming := errgroup.WithContext(t.Context())
		for _, g := range c.groups {
			for range 2 {
				store := newStore(t, r.db, r.store.config)
				claiming.Go(func() error { return g.read(whileClaiming, store) })
			}
		}
		tidying, stopTidying := context.WithCancel(t.Context())
		tidied := async(func() (n int, err error) {
			for ; tidying.Err() == nil; n++ {
				if err := r.store.TidyBatches(tidying); err != nil && tidying.Err() == nil {
					return n, err
				}
				_ = storekit.Pause(tidying, 500*time.Millisecond) // each pass makes the server plan all statements again
			}
			return n, nil
		})
		err = writing.Wait()
		c.written.Store(true)
		err = errors.Join(err, claiming.Wait())
		stopTidying()
		require.NoError(t, err)
		require.NotZero(t, await(t, tidied), "the batches that are over were dropped during the test")

		for _, g := range c.groups {
			lost, phantoms := g.missing(), g.phantoms()
			t.Logf("%s: %d committed, %d rolled back, %d handed out, %d lost, %d twice, %d phantoms, %d inversions, %d keys shared",
				g.name, len(c.committed), c.rolledBack, g.deliveries, len(lost), len(g.twice), len(phantoms), len(g.inverted), len(g.shared))
			for what, found := range map[string][]string{"lost": lost, "twice": g.twice, "phantoms": phantoms, "inverted": g.inverted,
				"shared": g.shared} {
				require.Empty(t, found[:min(10, len(found))], "%s: %s", g.name, what)
			}
		}
		r.census()
	})
}

type checker struct {
	db      *pgxpool.Pool
	store   *postgres.Store
	until   time.Time
	written atomic.Bool
	names   atomic.Int64
	groups  []*checkedGroup

	mu         sync.Mutex
	committed  map[string]bool
	rolledBack int
}

func chance(one, in int) bool { return rand.IntN(in) < one }

func waitUpTo(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(most)):
	}
}

func (c *checker) write(ctx context.Context) error {
	for time.Now().Before(c.until) && ctx.Err() == nil {
		if err := c.transaction(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// transaction runs one transaction of a writer.
func (c *checker) transaction(ctx context.Context) error {
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if chance(1, 2) {
		if _, err := tx.Exec(ctx, `SELECT pg_current_xact_id()`); err != nil {
			return err
		}
	}
	switch {
	case chance(1, 200):
		waitUpTo(ctx, 4*time.Second)
	case chance(1, 4):
		waitUpTo(ctx, 20*time.Millisecond)
	}
	w := &checkedWrite{c: c, tx: tx, topic: checkTopics[rand.IntN(len(checkTopics))]}
	if chance(1, 2) {
		k := rand.IntN(checkKeys)
		w.key, w.topic = fmt.Sprint("key", k), checkTopics[k%len(checkTopics)]
	}
	for range 1 + rand.IntN(2) {
		if err := w.append(ctx); err != nil {
			return err
		}
	}
	if chance(1, 3) {
		waitUpTo(ctx, 10*time.Millisecond)
	}
	commit := chance(4, 5)
	if commit {
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !commit {
		c.rolledBack += len(w.names)
		return nil
	}
	for _, name := range w.names {
		c.committed[name] = true
	}
	return nil
}

// checkedWrite has the records that a transaction writes.
type checkedWrite struct {
	c          *checker
	tx         pgx.Tx
	topic, key string
	names      []string
}

// append writes some records, some of them in a savepoint that is released or rolled back.
func (w *checkedWrite) append(ctx context.Context) error {
	n := 1 + rand.IntN(5)
	if chance(1, 300) {
		n = checkHuge
	}
	if !chance(1, 4) {
		names, err := w.appendIn(ctx, w.tx, n)
		w.names = append(w.names, names...)
		return err
	}
	nested, err := w.tx.Begin(ctx)
	if err != nil {
		return err
	}
	names, err := w.appendIn(ctx, nested, n)
	if err != nil {
		return err
	}
	if chance(1, 2) {
		return nested.Rollback(ctx)
	}
	w.names = append(w.names, names...)
	return nested.Commit(ctx)
}

// appendIn increments the counter in the key's row, which it locks, before it appends.
func (w *checkedWrite) appendIn(ctx context.Context, tx pgx.Tx, n int) ([]string, error) {
	last := 0
	if w.key != "" {
		if err := tx.QueryRow(ctx, `UPDATE counters SET n = n + $2 WHERE key = $1 RETURNING n`, w.key, n).Scan(&last); err != nil {
			return nil, err
		}
	}
	names, records := make([]string, n), make([]*outmill.Record, n)
	for i := range records {
		names[i] = strconv.FormatInt(w.c.names.Add(1), 10)
		records[i] = &outmill.Record{Topic: w.topic, Key: w.key, MessageID: names[i], CorrelationID: strconv.Itoa(last - n + i + 1)}
	}
	return names, w.c.store.Append(w.c.store.WithTx(ctx, tx), records...)
}

// whereabouts is the place of a message, as a group's claimers see it.
type whereabouts int

const (
	given whereabouts = iota + 1
	givenBack
	settled
)

// checkedGroup has the observations of a group's claimers.
type checkedGroup struct {
	c     *checker
	name  string
	order outmill.Order

	mu         sync.Mutex
	deliveries int
	done       int
	progress   time.Time
	hands      map[string]whereabouts
	// next is the last number that was handed out of each key, held how many of its records
	// each owner has.
	next                    map[string]int
	held                    map[string]map[outmill.OwnerToken]int
	twice, inverted, shared []string
}

func (g *checkedGroup) read(ctx context.Context, store *postgres.Store) error {
	req := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: g.name, Lease: time.Hour, Order: g.order}
	var kept []*outmill.Record
	for !g.over() {
		req.Limit, req.MaxBytes = 1+rand.IntN(200), 0
		if chance(1, 10) {
			req.MaxBytes = 1 + rand.IntN(500)
		}
		found, err := store.Claim(ctx, req)
		if err != nil {
			return err
		}
		g.received(found)
		if len(found) == 0 && len(kept) == 0 {
			waitUpTo(ctx, 4*time.Millisecond)
			continue
		}
		// Some records stay in work for one more claim.
		now := slices.Concat(kept, found)
		kept = nil
		if len(now) > 1 && len(found) > 0 && chance(1, 2) {
			half := len(now) / 2
			now, kept = now[:half], now[half:]
		}
		if err := g.settle(ctx, store, now); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// over reports whether the writers have ended and all records are settled, or nothing was
// delivered for long.
func (g *checkedGroup) over() bool {
	if !g.c.written.Load() {
		return false
	}
	g.c.mu.Lock()
	committed := len(g.c.committed)
	g.c.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done >= committed || time.Since(g.progress) > noProgress
}

func (g *checkedGroup) received(found []*outmill.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(found) > 0 || g.progress.IsZero() || !g.c.written.Load() {
		g.progress = time.Now()
	}
	for _, r := range found {
		g.deliveries++
		before := g.hands[r.MessageID]
		g.hands[r.MessageID] = given
		if before == given || before == settled {
			g.twice = append(g.twice, r.MessageID)
		}
		if r.Key == "" || g.order != outmill.OrderKey {
			continue
		}
		if g.held[r.Key] == nil {
			g.held[r.Key] = map[outmill.OwnerToken]int{}
		}
		for owner, n := range g.held[r.Key] {
			if owner != r.Owner && n > 0 {
				g.shared = append(g.shared, fmt.Sprintf("%s: %s", r.Key, r.MessageID))
			}
		}
		g.held[r.Key][r.Owner]++
		if before == 0 {
			if want := strconv.Itoa(g.next[r.Key] + 1); r.CorrelationID != want {
				g.inverted = append(g.inverted, fmt.Sprintf("%s: %s is number %s, not %s", r.Key, r.MessageID, r.CorrelationID, want))
			}
			g.next[r.Key]++
		}
	}
}

// gives notes the end of the leases before the call that ends them.
func (g *checkedGroup) gives(records []*outmill.Record, to whereabouts) []outmill.Lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range records {
		g.hands[r.MessageID] = to
		if to == settled {
			g.done++
		}
		if owners := g.held[r.Key]; owners != nil {
			owners[r.Owner]--
		}
	}
	return leasesOf(records)
}

// settle acks. Sometimes it makes another call first, which moves records out of the log.
func (g *checkedGroup) settle(ctx context.Context, store *postgres.Store, now []*outmill.Record) error {
	n := min(len(now), 1+rand.IntN(3))
	back := func(call func([]outmill.Lease) error) error {
		// Start from the end: the last records of a key are given back first.
		some := now[len(now)-n:]
		now = now[:len(now)-n]
		return call(g.gives(some, givenBack))
	}
	if len(now) == 0 {
		return nil
	}
	var err error
	switch rand.IntN(15) {
	case 0:
		err = back(func(leases []outmill.Lease) error { return store.Release(ctx, leases) })
	case 1:
		err = back(func(leases []outmill.Lease) error {
			var list []outmill.Settlement
			for _, l := range leases {
				list = append(list, outmill.Settlement{Lease: l, Err: "again"})
			}
			return store.Abandon(ctx, list)
		})
	case 2:
		var extended []outmill.Lease
		extended, err = store.Extend(ctx, time.Hour, leasesOf(now[:n]))
		if err == nil && len(extended) != n {
			err = fmt.Errorf("%d of %d leases stood", len(extended), n)
		}
	case 3:
		if _, err = store.ReapExpired(ctx, 100); err == nil {
			_, err = store.DeleteProcessed(ctx, 100)
		}
	}
	for err == nil && len(now) > 0 {
		part := now
		if chance(1, 4) {
			part = now[:1+rand.IntN(len(now))]
		}
		now = now[len(part):]
		err = store.Ack(ctx, "", g.gives(part, settled))
	}
	return err
}

func (g *checkedGroup) missing() []string {
	var lost []string
	for name := range g.c.committed {
		if g.hands[name] != settled {
			lost = append(lost, name)
		}
	}
	return lost
}

func (g *checkedGroup) phantoms() []string {
	var found []string
	for name := range g.hands {
		if !g.c.committed[name] {
			found = append(found, name)
		}
	}
	return found
}
