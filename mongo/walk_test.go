package mongo_test

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

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

// walk is many goroutines that do what they like with three stores on the
// same tables, and what they know of it. Keys that begin with p are never
// deleted, failed or expired; those with x suffer everything.
type walk struct {
	t      *testing.T
	s      stand
	stores []*mongo.Store
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
	drops   map[string]int
	all     atomic.Bool
	writing atomic.Bool
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

func newWalk(t *testing.T) *walk {
	t.Helper()
	s := newStand(t, mongo.Config{})
	_, err := s.DropGroup(t.Context(), readers)
	require.NoError(t, err)
	w := &walk{
		t: t, s: s, stores: []*mongo.Store{s.Store},
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
		w.stores = append(w.stores, s.second(t, mongotest.Server(t), mongo.Config{}))
	}
	w.writing.Store(true)
	return w
}

func (w *walk) store() *mongo.Store { return w.stores[rand.N(len(w.stores))] }

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
		err := store.InTx(ctx, func(ctx context.Context) error {
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
	err := store.InTx(ctx, func(ctx context.Context) error {
		for _, one := range records {
			if err := store.Append(ctx, one); err != nil {
				return err
			}
		}
		return pause(ctx, time.Duration(rand.N(20))*time.Millisecond)
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

func placeOf(g, topic, key string) string { return g + " " + topic + " " + key }

// handle is a worker that keeps the order itself, as the contract asks.
func (w *walk) handle(ctx context.Context, g walkGroup, calm func() bool) {
	owner := outmill.NewOwnerToken()
	for ctx.Err() == nil {
		store, drops := w.store(), w.dropsOf(g)
		found, err := store.Claim(ctx, w.request(g, owner, time.Minute))
		w.failed("claim", err)
		if len(found) == 0 {
			_ = pause(ctx, 20*time.Millisecond)
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
		at := placeOf(g.name, r.Topic, r.Key)
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
		if h := w.hands[placeOf(g.name, r.Topic, r.Key)]; h != nil && h.owner == r.Owner {
			h.count--
		}
	}
}

func (w *walk) work(ctx context.Context, store *mongo.Store, g walkGroup, drops int, found []*outmill.Record, calm bool) {
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
	at := placeOf(g.name, r.Topic, r.Key)
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

// inspect looks for held records that have no lane, and so would be held for
// ever.
func (w *walk) inspect(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := w.heldWithoutLane(ctx)
		var conflict driver.ServerError
		if ctx.Err() == nil && n > 0 || err != nil && ctx.Err() == nil && !errors.As(err, &conflict) {
			w.blame("%d held records without a lane (%v)", n, err)
		}
		_ = pause(ctx, 20*time.Millisecond)
	}
}

func (w *walk) heldWithoutLane(ctx context.Context) (int, error) {
	session, err := w.s.Client().StartSession()
	if err != nil {
		return 0, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	n, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		lanes := map[string]bool{}
		held := 0
		for _, from := range []string{"lanes", "records"} {
			filter := bson.D{}
			if from == "records" {
				filter = bson.D{{Key: "stage", Value: 1}}
			}
			cursor, err := w.s.db.Collection("outmill_"+from).Find(ctx, filter)
			if err != nil {
				return 0, err
			}
			var found []struct{ Grp, Topic, Key string }
			var ids []struct {
				ID struct{ Grp, Topic, Key string } `bson:"_id"`
			}
			if from == "lanes" {
				if err := cursor.All(ctx, &ids); err != nil {
					return 0, err
				}
				for _, l := range ids {
					lanes[placeOf(l.ID.Grp, l.ID.Topic, l.ID.Key)] = true
				}
				continue
			}
			if err := cursor.All(ctx, &found); err != nil {
				return 0, err
			}
			for _, r := range found {
				if !lanes[placeOf(r.Grp, r.Topic, r.Key)] {
					held++
				}
			}
		}
		return held, nil
	}, options.Transaction().SetReadConcern(readconcern.Snapshot()))
	if err != nil {
		return 0, err
	}
	return n.(int), nil
}

func Test_whatever_happens_at_once_every_message_is_handled_and_keys_keep_their_order(t *testing.T) {
	testenv.Long(t, "races with many turns")
	t.Parallel()
	w := newWalk(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers, others sync.WaitGroup
	for writer := range 3 {
		writers.Go(func() { w.write(ctx, writer, testenv.Steps(15, 60)) })
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
	writers.Wait()
	w.writing.Store(false)
	w.drained()
	stop()
	others.Wait()
	w.audit()
}

func (w *walk) drained() {
	w.t.Helper()
	left := func() int {
		n, err := w.s.records().CountDocuments(w.t.Context(), bson.D{{Key: "open", Value: true}})
		require.NoError(w.t, err)
		return int(n)
	}
	// As long as there is progress it is not stuck: the machine may be busy.
	for n := left(); n > 0; {
		before := n
		if eventually(w.t.Context(), patience, func() bool { n = left(); return n < before }) {
			continue
		}
		w.blame("%d records are stuck: %s\nlanes: %s", left(), w.some("records", bson.D{{Key: "open", Value: true}}), w.some("lanes", bson.D{}))
		return
	}
	lanes := func() int {
		n, err := w.s.db.Collection("outmill_lanes").CountDocuments(w.t.Context(), bson.D{})
		require.NoError(w.t, err)
		return int(n)
	}
	if !eventually(w.t.Context(), patience, func() bool { return lanes() == 0 }) {
		w.blame("%d lanes remain that hold nothing: %s", lanes(), w.some("lanes", bson.D{}))
	}
}

// some are the first documents of a collection, for people.
func (w *walk) some(from string, filter bson.D) string {
	cursor, err := w.s.db.Collection("outmill_"+from).Find(w.t.Context(), filter, options.Find().SetLimit(5))
	require.NoError(w.t, err)
	var found []bson.Raw
	require.NoError(w.t, cursor.All(w.t.Context(), &found))
	var lines []string
	for _, d := range found {
		lines = append(lines, d.String())
	}
	return strings.Join(lines, "\n")
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
