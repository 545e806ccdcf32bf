package tenants_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// sickness is how a member is sick, and how it becomes well.
type sickness struct {
	begin, end func()
}

// ward is a set of members, some of which become sick.
type ward struct {
	members tenants.Static
	// sick are the keys of those members, and ways are how.
	sick []string
	ways map[string]sickness
	// keepsOpen says that its server keeps transactions open for a minute that nobody can end.
	keepsOpen bool
}

const otherTenants = 2

// publishEach is the pause of a publisher. With a shorter one the dozen sets that are open at once fill a small machine, and what
// others meet is that.
const publishEach = 100 * time.Millisecond

// inTheEnd is how long a run waits for messages that nothing holds up. How long they take is the machine's.
const inTheEnd = 5 * soon

// lateOf is the part of CallTimeout for which a claim waits for a member at most.
const lateOf = 10

func (w ward) isSick(key string) bool { return slices.Contains(w.sick, key) }

// watched is what a run has seen of the messages of a tenant.
type watched struct {
	published, handled atomic.Int64
	mu                 sync.Mutex
	// worst is the worst latency of the messages that were published since then.
	since time.Time
	worst time.Duration
	seen  map[string]int
}

func (w *watched) handle(uuid string, published time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if published.After(w.since) {
		w.worst = max(w.worst, time.Since(published))
	}
	w.seen[uuid]++
	w.handled.Add(1)
}

// measure begins to measure, and returns how many messages were handled before.
func (w *watched) measure() (handled int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.worst = time.Now(), 0
	return w.handled.Load()
}

func (w *watched) worstSoFar() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.worst
}

// lengths are those of a run.
func lengths() (callTimeout, sickFor, slack time.Duration) {
	if testenv.All() {
		return 10 * time.Second, time.Minute, time.Second
	}
	return time.Second, 5 * time.Second, 2 * time.Second
}

// service is a set of tenants whose messages are published and handled.
type service struct {
	set  *tenants.Set
	seen map[string]*watched
	// publishing ends the publishers, and waits for them.
	stop func()
}

// serveWard begins to publish and to handle. If it is stuck, it does not end well. The end of the test ends it.
func serveWard(t *testing.T, members tenants.Static, withInbox, stuck bool) *service {
	t.Helper()
	callTimeout, _, _ := lengths()
	ensure(t, members)
	set, err := tenants.New(t.Context(), tenants.Config{Discovery: members, CallTimeout: callTimeout, Linger: -1}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	awaitOpen(t, set, len(members))
	closeWithin := soon
	if stuck {
		closeWithin = time.Second
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeWithin}, nil)
	require.NoError(t, err)
	sub, err := subscriber.New(set, subscriber.Config{
		Order: outmill.OrderKey, Lease: 12 * time.Second, CloseTimeout: closeWithin,
		// What a member that is away costs an attempt is dead, and is missing in the end.
		Retry: outmill.RetryPolicy{MaxAttempts: 1},
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := sub.Close(); !stuck {
			require.NoError(t, err)
		}
	})
	router.AddMiddleware(subscriber.KeepError)
	if withInbox {
		box, err := inbox.New(set, inbox.Config{Consumer: "ward"})
		require.NoError(t, err)
		router.AddMiddleware(box.Middleware)
	}
	s := &service{set: set, seen: map[string]*watched{}}
	for _, m := range members {
		s.seen[m.Key] = &watched{seen: map[string]int{}}
	}
	router.AddConsumerHandler("ward", topic, sub, func(msg *message.Message) error {
		at, err := strconv.ParseInt(string(msg.Payload), 10, 64)
		if err != nil {
			return err
		}
		s.seen[msg.Metadata.Get(outmill.MetadataTenantID)].handle(msg.UUID, time.Unix(0, at))
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		if err := router.Close(); !stuck {
			require.NoError(t, err)
		}
		require.NoError(t, <-ended)
	})
	t.Cleanup(func() { logLeft(t, set) })
	publishing, stop := context.WithCancel(t.Context())
	var publishers sync.WaitGroup
	for _, m := range members {
		publishers.Go(func() { publish(publishing, set, m.Key, s.seen[m.Key]) })
	}
	s.stop = func() {
		stop()
		publishers.Wait()
	}
	t.Cleanup(s.stop)
	require.Eventually(t, func() bool { return s.handledAll(10) }, inTheEnd, 10*tick, "all are handled while nobody is sick")
	// The first calls of a store take longer, and what the machine does in that time is not what others meet later.
	for _, seen := range s.seen {
		seen.measure()
	}
	return s
}

// ensure makes the schemas of the members that have URLs. A busy machine may need longer than a set has for that.
func ensure(t *testing.T, members tenants.Static) {
	t.Helper()
	for _, m := range members {
		if m.URL == "" {
			continue
		}
		store, err := outmill.Open(t.Context(), m.URL, nil)
		require.NoError(t, err)
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.Close())
	}
}

func (s *service) handledAll(n int64) bool {
	for _, seen := range s.seen {
		if seen.handled.Load() < n {
			return false
		}
	}
	return true
}

// worst is the worst latency of all tenants.
func (s *service) worst() (worst time.Duration) {
	for _, seen := range s.seen {
		worst = max(worst, seen.worstSoFar())
	}
	return worst
}

// sickWard is a ward whose messages are published and handled, with a way in which its members are sick.
type sickWard struct {
	ward
	*service
	way sickness
	// stuck: such a server also keeps the outcomes of the sick member from being stored.
	stuck bool
	began map[string]int64
}

// runSick has the members of both wards be sick for the same while, and requires that the messages of the others are handled in time, and
// all messages in the end. What control takes, where nobody is sick, is the machine's.
func runSick(t *testing.T, open func(t *testing.T) ward, way string, inboxes []bool, control *service) {
	t.Helper()
	_, sickFor, _ := lengths()
	wards := make([]*sickWard, len(inboxes))
	for i, withInbox := range inboxes {
		w := open(t)
		wards[i] = &sickWard{ward: w, way: w.ways[way], stuck: w.keepsOpen && !testenv.All(), began: map[string]int64{}}
		wards[i].service = serveWard(t, w.members, withInbox, wards[i].stuck)
	}
	for _, w := range wards {
		for key, seen := range w.seen {
			w.began[key] = seen.measure()
		}
		w.way.begin()
	}
	<-time.After(sickFor)
	for _, w := range wards {
		w.requireOthersGoOn(t)
		w.way.end()
		w.stop()
	}
	for _, w := range wards {
		w.requireAllHandled(t)
		w.requireInTime(t, control.worst())
	}
}

func (w *sickWard) requireOthersGoOn(t *testing.T) {
	t.Helper()
	_, sickFor, _ := lengths()
	for key, seen := range w.seen {
		if !w.isSick(key) {
			// How many are handled in this time is the machine's; of a member that was held up, there would be none.
			require.Eventually(t, func() bool { return seen.handled.Load() > w.began[key]+int64(sickFor/time.Second) }, soon, tick,
				"messages of %s are handled all the time", key)
		}
	}
}

func (w *sickWard) requireAllHandled(t *testing.T) {
	t.Helper()
	for key, seen := range w.seen {
		if w.isSick(key) && w.stuck {
			t.Log(testenv.Shorter("until the server has ended the transactions that nobody could end"))
			continue
		}
		require.Eventually(t, func() bool {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			return len(seen.seen) >= int(seen.published.Load())
		}, inTheEnd, 10*tick, "all of %s are handled in the end", key)
		t.Logf("%s: %d messages, worst latency %s", key, seen.published.Load(), seen.worstSoFar().Round(time.Millisecond))
	}
}

func (w *sickWard) requireInTime(t *testing.T, machine time.Duration) {
	t.Helper()
	callTimeout, _, slack := lengths()
	t.Logf("worst latency where nobody is sick: %s", machine.Round(time.Millisecond))
	for key, seen := range w.seen {
		if !w.isSick(key) {
			require.LessOrEqual(t, seen.worstSoFar(), 2*machine+callTimeout/lateOf+slack, "the worst latency of %s", key)
		}
	}
}

// logLeft shows what is left after a failure: those that are dead were never handled.
func logLeft(t *testing.T, set *tenants.Set) {
	t.Helper()
	if !t.Failed() {
		return
	}
	left, err := set.List(context.WithoutCancel(t.Context()), outmill.ListQuery{})
	t.Logf("%d records are left, %v", len(left), err)
	for _, rec := range left {
		t.Logf("%s: %s, %d attempts, %d expiries: %s", rec.MessageID, rec.Status, rec.Attempts, rec.Expiries, rec.LastError)
	}
}

// publish publishes messages of a tenant, each with its time. It counts those that were surely published.
func publish(ctx context.Context, set *tenants.Set, tenant string, seen *watched) {
	pub, err := publisher.New(set, publisher.Config{}, nil)
	if err != nil {
		return
	}
	defer func() { _ = pub.Close() }()
	for i := 0; ctx.Err() == nil; i++ {
		msg := message.NewMessage(fmt.Sprintf("%s-%d", tenant, i), message.Payload(strconv.FormatInt(time.Now().UnixNano(), 10)))
		outmill.SetTenantID(msg, tenant)
		outmill.SetKey(msg, strconv.Itoa(i%7))
		if pub.WithContext(ctx).Publish(topic, msg) == nil {
			seen.published.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(publishEach):
		}
	}
}

// TestSet_SickMember runs in parallel on each engine, and beside it a set of members that are well: what
// messages take there is the machine's.
func TestSet_SickMember(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]struct {
		open func(t *testing.T) ward
		ways []string
	}{
		"memory":                            {func(t *testing.T) ward { return wardInMemory(t, 1) }, []string{"hangs", "answers late"}},
		"memory, more than are in parallel": {func(t *testing.T) ward { return wardInMemory(t, 10) }, []string{"hangs"}},
		"PostgreSQL":                        {wardOnPostgres, []string{"hangs", "answers late"}},
		"MongoDB":                           {wardOnMongoDB, []string{"hangs", "answers late"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			control := serveWard(t, engine.open(t).members, true, false)
			inboxes := []bool{false, true}
			if name != "memory" && !testenv.All() {
				t.Log(testenv.Shorter("a sick member on an engine without an inbox, which makes fewer calls"))
				inboxes = []bool{true}
			}
			for _, way := range engine.ways {
				t.Run(fmt.Sprintf("a member that %s holds up no other, with an inbox and without", way), func(t *testing.T) {
					t.Parallel()
					runSick(t, engine.open, way, inboxes, control)
				})
			}
		})
	}
}

func wardOnPostgres(t *testing.T) ward {
	t.Helper()
	return wardThroughProxy(t, func() (address *url.URL) {
		address, err := url.Parse(postgrestest.Database(t))
		require.NoError(t, err)
		return address
	})
}

func wardOnMongoDB(t *testing.T) ward {
	t.Helper()
	w := wardThroughProxy(t, func() (address *url.URL) {
		address, err := url.Parse(mongotest.Server(t))
		require.NoError(t, err)
		address.Path = "/" + mongotest.Database(t).Name()
		// Else the client finds the server behind the proxy.
		address.RawQuery = "directConnection=true"
		return address
	})
	w.keepsOpen = true
	return w
}

// wardThroughProxy has the sick member behind a proxy.
func wardThroughProxy(t *testing.T, database func() *url.URL) ward {
	t.Helper()
	far := database()
	p := proxy.New(t, far.Host)
	far.Host = p.Addr()
	late := 100 * time.Millisecond
	if testenv.All() {
		late = time.Second
	}
	w := ward{sick: []string{"sick"}, members: tenants.Static{{Key: "sick", URL: far.String()}}, ways: map[string]sickness{
		"hangs":        {func() { p.Delay(time.Hour) }, func() { p.Delay(0) }},
		"answers late": {func() { p.Delay(late) }, func() { p.Delay(0) }},
	}}
	for i := range otherTenants {
		w.members = append(w.members, tenants.Tenant{Key: fmt.Sprintf("other%d", i), URL: database().String()})
	}
	return w
}

// wardInMemory has n sick members.
func wardInMemory(t *testing.T, n int) ward {
	t.Helper()
	var sick []*memstore.Database
	delay := func(by time.Duration) func() {
		return func() {
			for _, db := range sick {
				db.Delay(by)
			}
		}
	}
	w := ward{ways: map[string]sickness{
		"hangs":        {delay(time.Hour), delay(0)},
		"answers late": {delay(900 * time.Millisecond), delay(0)},
	}}
	for i := range n {
		sick = append(sick, memstore.NewDatabase())
		w.sick = append(w.sick, fmt.Sprintf("sick%d", i))
		w.add(t, w.sick[i], sick[i])
	}
	for i := range otherTenants {
		w.add(t, fmt.Sprintf("other%d", i), memstore.NewDatabase())
	}
	return w
}

func (w *ward) add(t *testing.T, key string, db *memstore.Database) {
	t.Helper()
	store := memstore.New(db, memstore.Options{Name: key})
	t.Cleanup(func() { _ = store.Close() })
	require.NoError(t, store.Ensure(t.Context()))
	w.members = append(w.members, tenants.Tenant{Key: key, Store: store})
}
