package tenants_test

import (
	"context"
	"fmt"
	"net/url"
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

// ward is a set of members, one of which becomes sick.
type ward struct {
	members tenants.Static
	// sick is the key of that member, and ways are how.
	sick string
	ways map[string]sickness
	// keepsOpen says that its server keeps transactions open for a minute that nobody can end.
	keepsOpen bool
}

const otherTenants = 2

// watched is what a run has seen of the messages of a tenant.
type watched struct {
	published, handled atomic.Int64
	mu                 sync.Mutex
	worst              time.Duration
	seen               map[string]int
}

func (w *watched) handle(uuid string, latency time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.worst = max(w.worst, latency)
	w.seen[uuid]++
	w.handled.Add(1)
}

// runSick has a member be sick for a while, and requires that the messages of the others are handled in
// time, and all messages in the end.
func runSick(t *testing.T, w ward, way sickness, withInbox bool) {
	t.Helper()
	callTimeout, sickFor, slack := time.Second, 5*time.Second, 2*time.Second
	if testenv.All() {
		callTimeout, sickFor, slack = 10*time.Second, time.Minute, time.Second
	}
	set, err := tenants.New(t.Context(), tenants.Config{Discovery: w.members, Ensure: true, CallTimeout: callTimeout, Linger: -1}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	defer logLeft(t, set)
	// Such a server also keeps the outcomes of the sick member from being stored.
	stuck := w.keepsOpen && !testenv.All()
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
	defer func() {
		if err := sub.Close(); !stuck {
			require.NoError(t, err)
		}
	}()
	router.AddMiddleware(subscriber.KeepError)
	if withInbox {
		box, err := inbox.New(set, inbox.Config{Consumer: "ward"})
		require.NoError(t, err)
		router.AddMiddleware(box.Middleware)
	}
	seen := map[string]*watched{}
	for _, m := range w.members {
		seen[m.Key] = &watched{seen: map[string]int{}}
	}
	router.AddConsumerHandler("ward", topic, sub, func(msg *message.Message) error {
		at, err := strconv.ParseInt(string(msg.Payload), 10, 64)
		if err != nil {
			return err
		}
		seen[msg.Metadata.Get(outmill.MetadataTenantID)].handle(msg.UUID, time.Since(time.Unix(0, at)))
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	defer func() {
		if err := router.Close(); !stuck {
			require.NoError(t, err)
		}
		require.NoError(t, <-ended)
	}()

	publishing, stop := context.WithCancel(t.Context())
	var publishers sync.WaitGroup
	for _, m := range w.members {
		publishers.Go(func() { publish(publishing, set, m.Key, seen[m.Key]) })
	}
	atWork := func() bool {
		for _, s := range seen {
			if s.handled.Load() < 10 {
				return false
			}
		}
		return true
	}
	require.Eventually(t, atWork, soon, tick, "all are handled while nobody is sick")
	way.begin()
	began := map[string]int64{}
	for key, s := range seen {
		began[key] = s.handled.Load()
	}
	<-time.After(sickFor)
	for key, s := range seen {
		if key != w.sick {
			require.Greater(t, s.handled.Load(), began[key]+int64(sickFor/time.Second), "messages of %s are handled all the time", key)
		}
	}
	way.end()
	stop()
	publishers.Wait()
	for key, s := range seen {
		if key == w.sick && stuck {
			t.Log(testenv.Shorter("until the server has ended the transactions that nobody could end"))
			continue
		}
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.seen) >= int(s.published.Load())
		}, 4*time.Minute, 10*tick, "all of %s are handled in the end", key)
		s.mu.Lock()
		t.Logf("%s: %d messages, worst latency %s", key, len(s.seen), s.worst.Round(time.Millisecond))
		if key != w.sick {
			require.LessOrEqual(t, s.worst, callTimeout+slack, "the worst latency of %s", key)
		}
		s.mu.Unlock()
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
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestSet_SickMember(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) ward{
		"memory": wardInMemory, "PostgreSQL": wardOnPostgres, "MongoDB": wardOnMongoDB,
	} {
		for _, way := range []string{"hangs", "answers late"} {
			for _, withInbox := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s: a member that %s holds up no other, inbox %t", name, way, withInbox), func(t *testing.T) {
					t.Parallel()
					if name != "memory" && !withInbox {
						testenv.Long(t, "a sick member on an engine without an inbox, which makes fewer calls")
					}
					w := open(t)
					runSick(t, w, w.ways[way], withInbox)
				})
			}
		}
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
	w := ward{sick: "sick", members: tenants.Static{{Key: "sick", URL: far.String()}}, ways: map[string]sickness{
		"hangs":        {func() { p.Delay(time.Hour) }, func() { p.Delay(0) }},
		"answers late": {func() { p.Delay(late) }, func() { p.Delay(0) }},
	}}
	for i := range otherTenants {
		w.members = append(w.members, tenants.Tenant{Key: fmt.Sprintf("other%d", i), URL: database().String()})
	}
	return w
}

func wardInMemory(t *testing.T) ward {
	t.Helper()
	sick := memstore.NewDatabase()
	w := ward{sick: "sick", ways: map[string]sickness{
		"hangs":        {func() { sick.Delay(time.Hour) }, func() { sick.Delay(0) }},
		"answers late": {func() { sick.Delay(700 * time.Millisecond) }, func() { sick.Delay(0) }},
	}}
	w.add(t, "sick", sick)
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
