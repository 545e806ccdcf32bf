package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

// walk is many goroutines that do what they like with three stores on the
// same tables, and what they know of it. Keys that begin with p are never
// deleted, failed or expired; those with x suffer everything.
type walk struct {
	t      *testing.T
	r      *ring
	stores []conforming
	groups []walkGroup

	mu      sync.Mutex
	written []string
	late    []string
	handled map[string]map[string]int
	last    map[string]int
	hands   map[string]*hand
	wrong   []string
	stolen  map[string]bool
	// drops counts how often a group was dropped.
	drops map[string]int
	// truncated counts segments of the log.
	truncated atomic.Int64
	all       atomic.Bool
	writing   atomic.Bool
}

type walkGroup struct {
	name   string
	order  outmill.Order
	policy outmill.KeyPolicy
}

type hand struct {
	owner outmill.OwnerToken
	count int
}

func newWalk(t *testing.T, lane postgres.Lane) *walk {
	t.Helper()
	r := newRing(t, lane, storetest.Options{})
	_, err := r.store.DropGroup(t.Context(), readers)
	require.NoError(t, err)
	w := &walk{
		t: t, r: r, stores: []conforming{r.store},
		groups: []walkGroup{
			{readers, outmill.OrderKey, outmill.KeyBlock},
			{"parkers", outmill.OrderKey, outmill.KeyPark},
			{"skippers", outmill.OrderKey, outmill.KeySkip},
			{"topics", outmill.OrderTopic, outmill.KeyBlock},
			{"any", outmill.OrderNone, outmill.KeyBlock},
		},
		handled: map[string]map[string]int{}, last: map[string]int{}, hands: map[string]*hand{}, stolen: map[string]bool{}, drops: map[string]int{},
	}
	for range 2 {
		w.stores = append(w.stores, reopen(t, r.store))
	}
	w.writing.Store(true)
	return w
}

func (w *walk) store() conforming { return w.stores[rand.N(len(w.stores))] }

func (w *walk) blame(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) < 20 {
		w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
	}
}

func (w *walk) failed(call string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		w.blame("%s: %v", call, err)
	}
}

var errThrownAway = errors.New("thrown away")

// write appends n times to keys that no other writer uses.
func (w *walk) write(ctx context.Context, writer, n int) {
	next := map[string]int{}
	for range n {
		var records []*outmill.Record
		taken := map[string]int{}
		for range 1 + rand.N(5) {
			key := fmt.Sprintf("%s%d-%d", []string{"p", "p", "x"}[rand.N(3)], writer, rand.N(3))
			if _, ok := taken[key]; !ok {
				taken[key] = next[key]
			}
			topic := "orders"
			if key[len(key)-1] == '0' {
				topic = "invoices"
			}
			one := &outmill.Record{Topic: topic, Key: key, MessageID: fmt.Sprintf("%s/%d", key, taken[key])}
			if key[0] == 'x' && rand.N(5) == 0 {
				one.TimeToLive = time.Duration(1+rand.N(30)) * time.Millisecond
			}
			if key[0] == 'x' && rand.N(5) == 0 {
				one.Delay = time.Duration(1+rand.N(30)) * time.Millisecond
			}
			taken[key]++
			records = append(records, one)
		}
		known := w.all.Load()
		if !w.appended(ctx, records) {
			continue
		}
		w.mu.Lock()
		for _, one := range records {
			w.written = append(w.written, one.MessageID)
			if known {
				w.late = append(w.late, one.MessageID)
			}
		}
		w.mu.Unlock()
		for key, n := range taken {
			next[key] = n
		}
	}
}

func (w *walk) appended(ctx context.Context, records []*outmill.Record) bool {
	store := w.store()
	switch rand.N(4) {
	case 0:
		err := store.Append(ctx, records...)
		w.failed("append", err)
		return err == nil
	case 1:
		err := store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error {
			if err := store.Append(ctx, records...); err != nil {
				return err
			}
			return errThrownAway
		})
		if !errors.Is(err, errThrownAway) {
			w.failed("append", err)
		}
		return false
	}
	err := store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for _, one := range records {
			if err := store.Append(ctx, one); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", rand.Float64()*0.02)
		return err
	})
	w.failed("append", err)
	return err == nil
}

func (w *walk) request(g walkGroup, owner outmill.OwnerToken, lease time.Duration) outmill.ClaimRequest {
	return outmill.ClaimRequest{
		Owner: owner, Group: g.name, Limit: 1 + rand.N(8), Lease: lease, Order: g.order, KeyPolicy: g.policy,
		MaxBytes: rand.N(2) * 200,
	}
}

func place(g, topic, key string) string { return g + " " + topic + " " + key }

// handle is a worker that keeps the order itself, as the contract asks.
func (w *walk) handle(ctx context.Context, g walkGroup, calm func() bool) {
	owner := outmill.NewOwnerToken()
	for ctx.Err() == nil {
		store, drops := w.store(), w.dropsOf(g)
		found, err := store.Claim(ctx, w.request(g, owner, time.Minute))
		w.failed("claim", err)
		if len(found) == 0 {
			_ = pause(ctx, 5*time.Millisecond)
			continue
		}
		w.receive(g, owner, found)
		w.work(ctx, store, g, drops, found, calm())
	}
}

func (w *walk) receive(g walkGroup, owner outmill.OwnerToken, found []*outmill.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.order == outmill.OrderNone {
		return
	}
	for _, r := range found {
		at := place(g.name, r.Topic, r.Key)
		h := w.hands[at]
		if h == nil {
			h = &hand{owner: owner}
			w.hands[at] = h
		}
		if h.owner != owner && h.count > 0 && r.Key[0] == 'p' && g.name != dropped.name && len(w.wrong) < 20 {
			w.wrong = append(w.wrong, fmt.Sprintf("%s is in two hands at once: %s", at, r.MessageID))
		}
		if h.owner != owner {
			h.owner, h.count = owner, 0
		}
		h.count++
	}
}

// letGo tells that the records are no longer in hand, before the store is told.
func (w *walk) letGo(g walkGroup, records ...*outmill.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range records {
		if h := w.hands[place(g.name, r.Topic, r.Key)]; h != nil && h.owner == r.Owner {
			h.count--
		}
	}
}

func (w *walk) work(ctx context.Context, store conforming, g walkGroup, drops int, found []*outmill.Record, calm bool) {
	if !calm && rand.N(10) == 0 {
		w.letGo(g, found...)
		w.failed("release", store.Release(ctx, leasesOf(found)))
		return
	}
	var done, back []*outmill.Record
	stopped := map[string]bool{}
	for _, r := range found {
		key := r.Topic + " " + r.Key
		if g.order == outmill.OrderTopic {
			key = r.Topic
		}
		switch {
		case stopped[key]:
			back = append(back, r)
		case !calm && rand.N(15) == 0 && g.policy != outmill.KeySkip:
			stopped[key] = true
			back = append(back, r)
			w.letGo(g, r)
			w.failed("abandon", store.Abandon(ctx, []outmill.Settlement{{Lease: r.Lease(), Delay: time.Duration(rand.N(20)) * time.Millisecond}}))
		case !calm && rand.N(8) == 0 && r.Key[0] == 'x':
			w.letGo(g, r)
			w.failed("fail", store.Fail(ctx, []outmill.Settlement{{Lease: r.Lease(), Err: "failed", Park: g.policy == outmill.KeyPark}}))
		default:
			w.handledNow(g, drops, r)
			done = append(done, r)
		}
	}
	w.letGo(g, back...)
	w.failed("release", store.Release(ctx, leasesOf(back)))
	w.letGo(g, done...)
	w.failed("ack", store.Ack(ctx, "", leasesOf(done)))
}

// dropsOf tells how many drops of the group have begun, and how many have ended,
// together. It is odd while the group is being dropped.
func (w *walk) dropsOf(g walkGroup) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drops[g.name]
}

// handledNow notes a record. drops is dropsOf before its claim. The order is checked of
// records that are claimed and handled between two drops of their group, because one
// that was claimed before a drop may be in hand still, together with later ones.
func (w *walk) handledNow(g walkGroup, drops int, r *outmill.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handled[g.name] == nil {
		w.handled[g.name] = map[string]int{}
	}
	w.handled[g.name][r.MessageID]++
	if r.Key[0] != 'p' || g.order == outmill.OrderNone || drops != w.drops[g.name] || drops%2 == 1 {
		return
	}
	var n int
	_, _ = fmt.Sscanf(r.MessageID[strings.Index(r.MessageID, "/")+1:], "%d", &n)
	at := place(g.name, r.Topic, r.Key)
	if last, known := w.last[at]; known && n <= last && len(w.wrong) < 20 {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: %d was handled after %d", at, n, last))
	}
	w.last[at] = n
}

// die claims for a moment and is gone, or acks too late.
func (w *walk) die(ctx context.Context, g walkGroup) {
	for ctx.Err() == nil && w.writing.Load() {
		owner := outmill.NewOwnerToken()
		store := w.store()
		found, err := store.Claim(ctx, w.request(g, owner, 15*time.Millisecond))
		w.failed("claim", err)
		_ = pause(ctx, 16*time.Millisecond)
		if rand.N(3) == 0 {
			w.mu.Lock()
			for _, r := range found {
				w.stolen[g.name+" "+r.MessageID] = true
			}
			w.mu.Unlock()
			w.failed("ack", store.Ack(ctx, "", leasesOf(found)))
		}
		_ = pause(ctx, time.Duration(rand.N(100))*time.Millisecond)
	}
}

func (w *walk) operate(ctx context.Context) {
	for ctx.Err() == nil && w.writing.Load() {
		store := w.store()
		found, err := store.List(ctx, outmill.ListQuery{Limit: 1000})
		w.failed("list", err)
		var doomed, dead []outmill.WorkItemID
		for _, r := range found {
			switch {
			case r.Status == outmill.StatusDead:
				dead = append(dead, r.ID)
			case r.Key[0] == 'x' && rand.N(100) == 0:
				doomed = append(doomed, r.ID)
			}
		}
		_, err = store.Delete(ctx, doomed...)
		w.failed("delete", err)
		if rand.N(3) == 0 && len(dead) > 0 {
			_, err = store.Requeue(ctx, dead[:1+rand.N(len(dead))]...)
			w.failed("requeue", err)
		}
		_ = pause(ctx, 10*time.Millisecond)
	}
}

func (w *walk) tidy(ctx context.Context) {
	for ctx.Err() == nil {
		store := w.store()
		_, err := store.ReapExpired(ctx, 5)
		w.failed("reap", err)
		_, err = store.ExpireDue(ctx, 50)
		w.failed("expire", err)
		_ = pause(ctx, 10*time.Millisecond)
	}
}

// dropped is a group that comes and goes: nothing is known of what it gets,
// save that nothing of it is stuck.
var dropped = walkGroup{"dropped", outmill.OrderKey, outmill.KeySkip}

func (w *walk) drop(ctx context.Context) {
	for ctx.Err() == nil && w.writing.Load() {
		w.register(ctx, dropped)
		_ = pause(ctx, time.Duration(rand.N(100))*time.Millisecond)
		w.dropping()
		_, err := w.store().DropGroup(ctx, dropped.name)
		w.failed("drop", err)
		w.dropping()
	}
}

// dropping notes that a drop begins or has ended. Between the two a record that is in
// hand may be deleted, and a later one of its key, whose transaction was open, comes.
func (w *walk) dropping() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drops[dropped.name]++
	w.last, w.hands = without(w.last, dropped.name), without(w.hands, dropped.name)
}

// without leaves out the places of the group.
func without[T any](places map[string]T, group string) map[string]T {
	maps.DeleteFunc(places, func(at string, _ T) bool { return strings.HasPrefix(at, group+" ") })
	return places
}

func (w *walk) register(ctx context.Context, g walkGroup) {
	w.failed("register", w.store().RegisterGroup(ctx, outmill.Registration{Group: g.name}))
}

const heldWithoutLane = `SELECT count(*) FROM {records} AS r WHERE r.stage = 1
AND NOT EXISTS (SELECT 1 FROM {lanes} AS l WHERE l.grp = r.grp AND l.topic = r.topic AND l.key = r.key)`

// sqlTwice finds records that are in more than one place.
const sqlTwice = `SELECT coalesce(string_agg(e.of, ', '), '') FROM (SELECT message_id || ' of ' || grp || ' in ' || string_agg(of, ' and ') AS of
	FROM (` + sqlEverywhere + `) AS e GROUP BY id, message_id, grp HAVING count(*) > 1) AS e`

// turnOver has appends go from segment to segment, and truncates and evacuates
// those behind, whether or not that is worth it.
func (w *walk) turnOver(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := w.r.db.Exec(ctx, w.r.sql(`UPDATE {meta} SET segment = (segment + 1) % 3`))
		w.failed("rotate", err)
		for segment := range 3 {
			store := w.store()
			truncated, err := store.Truncate(ctx, segment)
			w.failed("truncate", err)
			if truncated {
				w.truncated.Add(1)
			}
			if rand.N(20) == 0 {
				w.failed("evacuate", store.Evacuate(ctx, segment))
			}
		}
		_ = pause(ctx, time.Duration(rand.N(30))*time.Millisecond)
	}
}

// count looks whether each record is in one place, and at the batches.
func (w *walk) count(ctx context.Context) {
	for ctx.Err() == nil {
		for what, query := range map[string]string{"twice": sqlTwice, "unsound": sqlUnsound} {
			var found string
			err := w.r.db.QueryRow(ctx, w.r.sql(query)).Scan(&found)
			if ctx.Err() == nil && (err != nil || found != "") {
				w.blame("%s: %s (%v)", what, found, err)
			}
		}
		_ = pause(ctx, 50*time.Millisecond)
	}
}

func (w *walk) inspect(ctx context.Context) {
	for ctx.Err() == nil {
		var n int
		err := w.r.db.QueryRow(ctx, w.r.sql(heldWithoutLane)).Scan(&n)
		if ctx.Err() == nil && (err != nil || n > 0) {
			w.blame("%d held records without a lane (%v)", n, err)
		}
		_ = pause(ctx, 5*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func Test_whatever_happens_at_once_every_message_is_handled_and_keys_keep_their_order(t *testing.T) {
	testenv.Long(t, "races with many turns")
	t.Parallel()
	for _, lane := range bothLanes {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			newWalk(t, lane).walkAbout(lane)
		})
	}
}

func (w *walk) walkAbout(lane postgres.Lane) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	var writers, others sync.WaitGroup
	for writer := range 4 {
		writers.Go(func() { w.write(ctx, writer, testenv.Steps(10, 60)) })
	}
	for _, g := range w.groups {
		w.register(ctx, g)
	}
	w.all.Store(true)
	for _, g := range w.groups {
		others.Go(func() { w.die(ctx, g) })
		for range 2 {
			others.Go(func() { w.handle(ctx, g, func() bool { return !w.writing.Load() }) })
		}
	}
	for range 2 {
		others.Go(func() { w.handle(ctx, dropped, func() bool { return !w.writing.Load() }) })
	}
	others.Go(func() { w.drop(ctx) })
	others.Go(func() { w.operate(ctx) })
	others.Go(func() { w.tidy(ctx) })
	others.Go(func() { w.inspect(ctx) })
	if lane == postgres.LaneLog {
		others.Go(func() { w.count(ctx) })
		others.Go(func() { w.turnOver(ctx) })
	}
	writers.Wait()
	w.writing.Store(false)
	w.drained()
	stop()
	others.Wait()
	w.r.batchesAreSound()
	w.t.Logf("%d segments of the log were truncated during the walk", w.truncated.Load())
	w.audit()
}

const unsettled = `SELECT count(*) FROM (` + sqlEverywhere + `) AS e WHERE NOT ended`

func (w *walk) drained() {
	w.t.Helper()
	left := func() int { return valueOf[int](w.t, w.r.db, w.r.sql(unsettled)) }
	if !eventually(w.t.Context(), 2*patience, func() bool { return left() == 0 }) {
		rows, err := w.r.db.Query(w.t.Context(), w.r.sql(`SELECT format('%s %s %s %s in the %s', grp, topic, key, message_id, of) FROM (`+sqlEverywhere+`) AS e WHERE of <> 'records'
UNION ALL (SELECT format('%s %s %s %s stage %s parked %s available in %s, lane %s',
	r.grp, r.topic, r.key, r.message_id, r.stage, r.parked, r.available_at - now(), l) FROM {records} r
	LEFT JOIN {lanes} l ON (l.grp, l.topic, l.key) = (r.grp, r.topic, r.key) WHERE r.stage < 6 ORDER BY r.seq LIMIT 20)`))
		require.NoError(w.t, err)
		stuck, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(w.t, err)
		w.blame("%d records are stuck: %s", left(), strings.Join(stuck, "\n"))
		return
	}
	lanes := func() int { return valueOf[int](w.t, w.r.db, w.r.sql(`SELECT count(*) FROM {lanes}`)) }
	if !eventually(w.t.Context(), patience, func() bool { return lanes() == 0 }) {
		w.blame("%d lanes remain that hold nothing", lanes())
	}
}

func eventually(ctx context.Context, within time.Duration, fn func() bool) bool {
	for end := time.Now().Add(within); time.Now().Before(end); {
		if fn() {
			return true
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
	return fn()
}

// audit counts what became of each message.
func (w *walk) audit() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, g := range w.groups {
		expected := w.late
		if i == 0 {
			expected = w.written
		}
		for _, name := range expected {
			times := w.handled[g.name][name]
			if name[0] != 'p' || w.stolen[g.name+" "+name] {
				continue
			}
			if times != 1 {
				w.wrong = append(w.wrong, fmt.Sprintf("%s: %s was handled %d times", g.name, name, times))
			}
		}
		for name := range w.handled[g.name] {
			if !slices.Contains(w.written, name) {
				w.wrong = append(w.wrong, fmt.Sprintf("%s: %s was handled and never committed", g.name, name))
			}
		}
	}
	require.Empty(w.t, w.wrong)
}
