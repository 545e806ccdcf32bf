package allstores_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/subscriber"
)

const (
	patience = 5 * time.Minute
	topic    = "orders"
)

// quick is a configuration with short retry waits.
func quick() subscriber.Config {
	return subscriber.Config{
		Retry:        outmill.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
		PollInterval: 10 * time.Millisecond,
		CloseTimeout: time.Second,
	}
}

func newOrder() *message.Message { return message.NewMessage(watermill.NewUUID(), []byte("{}")) }

// meter is a store that counts the records that its readers have claimed and not settled, of each
// tenant, and remembers the largest number.
type meter struct {
	*postgres.Store

	mu     sync.Mutex
	leased map[outmill.Lease]string
	of     map[string]int
	most   map[string]int
	claims int
	// claiming counts the claims under way, and atOnce the most of them at a time.
	claiming, atOnce int
}

func (m *meter) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	m.mu.Lock()
	m.claims++
	m.claiming++
	m.atOnce = max(m.atOnce, m.claiming)
	m.mu.Unlock()
	found, err := m.Store.Claim(ctx, req)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claiming--
	for _, r := range found {
		m.leased[r.Lease()] = r.TenantID
		m.of[r.TenantID]++
		m.most[r.TenantID] = max(m.most[r.TenantID], m.of[r.TenantID])
	}
	return found, err
}

func (m *meter) claimsAtOnce() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.atOnce
}

func (m *meter) settled(leases ...outmill.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range leases {
		if tenant, leased := m.leased[l]; leased {
			m.of[tenant]--
			delete(m.leased, l)
		}
	}
}

func (m *meter) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	defer m.settled(leases...)
	return m.Store.Ack(ctx, by, leases)
}

func (m *meter) Release(ctx context.Context, leases []outmill.Lease) error {
	defer m.settled(leases...)
	return m.Store.Release(ctx, leases)
}

func (m *meter) settle(list []outmill.Settlement, call func([]outmill.Settlement) error) error {
	defer func() {
		for _, s := range list {
			m.settled(s.Lease)
		}
	}()
	return call(list)
}

func (m *meter) Abandon(ctx context.Context, list []outmill.Settlement) error {
	return m.settle(list, func(list []outmill.Settlement) error { return m.Store.Abandon(ctx, list) })
}

func (m *meter) Snooze(ctx context.Context, list []outmill.Settlement) error {
	return m.settle(list, func(list []outmill.Settlement) error { return m.Store.Snooze(ctx, list) })
}

func (m *meter) Fail(ctx context.Context, list []outmill.Settlement) error {
	return m.settle(list, func(list []outmill.Settlement) error { return m.Store.Fail(ctx, list) })
}

func (m *meter) mostOf(tenant string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most[tenant]
}

func (m *meter) claimed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claims
}

// fairShop is a shop that serves the tenants of its topic in turn.
type fairShop struct {
	*meter
	pub *publisher.Publisher
}

func openFairShop(t *testing.T) *fairShop {
	t.Helper()
	config := postgres.Config{FairTopics: []string{topic, "bills"}, EnsureSchema: true}
	store, err := postgres.Open(t.Context(), postgrestest.Database(t), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	return &fairShop{&meter{Store: store, leased: map[outmill.Lease]string{}, of: map[string]int{}, most: map[string]int{}}, pub}
}

// publish publishes n messages of a tenant, each with a key of its own.
func (s *fairShop) publish(t *testing.T, tenant string, n int) []*message.Message {
	t.Helper()
	batch := make([]*message.Message, n)
	for i := range batch {
		batch[i] = newOrder()
		outmill.SetTenantID(batch[i], tenant)
		outmill.SetKey(batch[i], batch[i].UUID)
	}
	require.NoError(t, s.pub.Publish(topic, batch...))
	return batch
}

// onlyWoken is a configuration whose subscriber looks for records only when something wakes it.
func onlyWoken(order outmill.Order, most int) subscriber.Config {
	cfg := quick()
	cfg.PollInterval = time.Hour
	cfg.MaxInFlight, cfg.MaxInFlightPerTenant, cfg.Order = 10, most, order
	return cfg
}

func (s *fairShop) subscriber(t *testing.T, cfg subscriber.Config) *subscriber.Subscriber {
	t.Helper()
	sub, err := subscriber.New(s.meter, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	return sub
}

// serve has each message handled in a goroutine of its own. ended is closed when the subscription
// has ended.
func serve(ctx context.Context, t *testing.T, sub *subscriber.Subscriber, handle func(*message.Message)) (ended <-chan struct{}) {
	t.Helper()
	messages, err := sub.Subscribe(ctx, topic)
	require.NoError(t, err)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for msg := range messages {
			go handle(msg)
		}
	}()
	return closed
}

func tenantOf(msg *message.Message) string { return msg.Metadata.Get(outmill.MetadataTenantID) }

// gate blocks the handlers of some tenants until it opens.
type gate struct {
	began  chan string
	opened chan struct{}
	open   func()
}

func newGate() *gate {
	opened := make(chan struct{})
	return &gate{make(chan string, 1000), opened, sync.OnceFunc(func() { close(opened) })}
}

func (g *gate) wait(msg *message.Message) {
	g.began <- tenantOf(msg)
	<-g.opened
}

// handle waits, and acks the message.
func (g *gate) handle(msg *message.Message) {
	g.wait(msg)
	msg.Ack()
}

// receive waits for n values.
func receive[T any](t *testing.T, n int, from <-chan T) (list []T) {
	t.Helper()
	for range n {
		select {
		case value := <-from:
			list = append(list, value)
		case <-time.After(patience):
			require.FailNow(t, "nothing came", "%d of %d", len(list), n)
		}
	}
	return list
}

func TestSubscriber_MaxInFlightPerTenant(t *testing.T) {
	t.Parallel()

	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
		t.Run("quick tenants are done while a slow one holds exactly its limit, in the order "+order.String(), func(t *testing.T) {
			t.Parallel()
			// Of a topic with parts, a claim takes half of what a part may hold, so a tenant holds exactly 2 of 2, and 2 or 3 of 3.
			const limit = 2
			s := openFairShop(t)
			slow := newGate()
			defer slow.open()
			quickDone, slowDone := make(chan string, 1000), make(chan string, 1000)
			cfg := onlyWoken(order, limit)
			cfg.BatchSize = 2 // Without a limit of tenants, a full claim begins a second one at the same time.
			serve(t.Context(), t, s.subscriber(t, cfg), func(msg *message.Message) {
				if tenantOf(msg) != "slow" {
					msg.Ack()
					quickDone <- tenantOf(msg)
					return
				}
				slow.wait(msg)
				msg.Ack()
				slowDone <- msg.UUID
			})
			s.publish(t, "slow", 50)
			for tenant := range 5 {
				s.publish(t, fmt.Sprint("quick", tenant), 20)
			}
			s.publish(t, "", 20)
			receive(t, 120, quickDone)
			receive(t, limit, slow.began)
			require.Empty(t, slow.began, "one handler more of the slow tenant runs")
			leased, err := s.List(t.Context(), outmill.ListQuery{Status: outmill.StatusLeased, TenantID: "slow"})
			require.NoError(t, err)
			require.Len(t, leased, limit)
			slow.open()
			receive(t, 50, slowDone)
			require.Equal(t, limit, s.mostOf("slow"))
			require.LessOrEqual(t, s.mostOf("quick0"), limit)
			require.LessOrEqual(t, s.mostOf(""), limit)
			require.Equal(t, 1, s.claimsAtOnce(), "claims at a time, which do not know what the others return")
		})
	}

	t.Run("a subscriber that finds only tenants at their limit does not spin", func(t *testing.T) {
		t.Parallel()
		s := openFairShop(t)
		slow := newGate()
		defer slow.open()
		done := make(chan string, 1000)
		serve(t.Context(), t, s.subscriber(t, onlyWoken(outmill.OrderKey, 2)), func(msg *message.Message) {
			if tenantOf(msg) == "slow" {
				slow.wait(msg)
			}
			msg.Ack()
			done <- msg.UUID
		})
		s.publish(t, "slow", 50)
		receive(t, 2, slow.began)
		before := s.claimed()
		const messages = 15
		for range messages {
			s.publish(t, "quick", 1)
			receive(t, 1, done)
		}
		require.Less(t, s.claimed()-before, 10*messages+10, "claims for %d messages", messages)
	})

	t.Run("a handler whose lease was lost counts until it returns", func(t *testing.T) {
		t.Parallel()
		s := openFairShop(t)
		cfg := quick()
		cfg.MaxInFlight, cfg.MaxInFlightPerTenant, cfg.MaxProcessing, cfg.Lease = 10, 1, 50*time.Millisecond, 3*time.Second
		stuck := newGate()
		defer stuck.open()
		done := make(chan string, 1000)
		var running, most atomic.Int64
		serve(t.Context(), t, s.subscriber(t, cfg), func(msg *message.Message) {
			if tenantOf(msg) == "a" {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer running.Add(-1)
				<-msg.Context().Done()
				stuck.wait(msg)
			}
			msg.Ack()
			done <- tenantOf(msg)
		})
		s.publish(t, "a", 3)
		receive(t, 1, stuck.began)
		for range 5 {
			s.publish(t, "b", 1)
			require.Equal(t, []string{"b"}, receive(t, 1, done))
		}
		require.EqualValues(t, 1, most.Load(), "a second handler of the tenant began")
		stuck.open()
		require.Equal(t, []string{"a"}, receive(t, 1, done))
	})

	t.Run("the handlers of a subscription that ends count for the next one", func(t *testing.T) {
		t.Parallel()
		s := openFairShop(t)
		slow := newGate()
		defer slow.open()
		done := make(chan string, 1000)
		handle := func(msg *message.Message) {
			if tenantOf(msg) == "slow" {
				slow.wait(msg)
			}
			msg.Ack()
			done <- tenantOf(msg)
		}
		cfg := onlyWoken(outmill.OrderNone, 2)
		cfg.CloseTimeout = patience
		sub := s.subscriber(t, cfg)
		first, end := context.WithCancel(t.Context())
		defer end()
		ended := serve(first, t, sub, handle)
		s.publish(t, "slow", 10)
		receive(t, 2, slow.began)
		end()
		// The first subscription waits for its two handlers, at most CloseTimeout.
		serve(t.Context(), t, sub, handle)
		s.publish(t, "quick", 20)
		receive(t, 20, done)
		require.Empty(t, slow.began, "a third handler of the slow tenant runs")
		slow.open()
		receive(t, 10, done)
		<-ended
		require.Equal(t, 2, s.mostOf("slow"))
	})

	t.Run("a tenant has its limit in each topic", func(t *testing.T) {
		t.Parallel()
		s := openFairShop(t)
		sub := s.subscriber(t, onlyWoken(outmill.OrderNone, 2))
		slow := newGate()
		defer slow.open()
		bills, err := sub.Subscribe(t.Context(), "bills")
		require.NoError(t, err)
		go func() {
			for msg := range bills {
				go slow.handle(msg)
			}
		}()
		serve(t.Context(), t, sub, slow.handle)
		s.publish(t, "a", 10)
		msg := newOrder()
		outmill.SetTenantID(msg, "a")
		require.NoError(t, s.pub.Publish("bills", msg))
		receive(t, 3, slow.began)
		require.Equal(t, 3, s.mostOf("a"))
	})

	t.Run("Once handles all records of a tenant, whatever its limit is", func(t *testing.T) {
		t.Parallel()
		s := openFairShop(t)
		sub := s.subscriber(t, onlyWoken(outmill.OrderKey, 2))
		handled := make(chan string, 100)
		serve(t.Context(), t, sub, func(msg *message.Message) { handled <- msg.UUID; msg.Ack() })
		s.publish(t, "a", 25)
		_, err := sub.Once(t.Context())
		require.NoError(t, err)
		require.Len(t, handled, 25)
	})

	t.Run("Once waits for a handler whose lease was lost while its tenant has more records", func(t *testing.T) {
		t.Parallel()
		s := openFairShop(t)
		cfg := quick()
		cfg.MaxInFlightPerTenant, cfg.MaxProcessing, cfg.Lease = 1, 50*time.Millisecond, 3*time.Second
		stuck := newGate()
		defer stuck.open()
		var handled atomic.Int64
		sub := s.subscriber(t, cfg)
		serve(t.Context(), t, sub, func(msg *message.Message) {
			if handled.Add(1) == 1 {
				<-msg.Context().Done()
				stuck.wait(msg)
			}
			msg.Ack()
		})
		s.publish(t, "a", 3)
		receive(t, 1, stuck.began)
		once := make(chan error, 1)
		go func() {
			_, err := sub.Once(t.Context())
			once <- err
		}()
		before := s.claimed()
		require.Eventually(t, func() bool { return s.claimed() > before+10 }, patience, time.Millisecond)
		require.Empty(t, once, "Once has returned")
		stuck.open()
		require.NoError(t, receive(t, 1, once)[0])
		require.GreaterOrEqual(t, handled.Load(), int64(3))
	})

	t.Run("a key whose records wait for each other does not hold up the other keys of its tenant", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "a tenant whose limit is used up by one key")
		s := openFairShop(t)
		blocked := newGate()
		defer blocked.open()
		done := make(chan string, 1000)
		serve(t.Context(), t, s.subscriber(t, onlyWoken(outmill.OrderKey, 4)), func(msg *message.Message) {
			if msg.Metadata.Get(outmill.MetadataKey) == "hot" {
				blocked.wait(msg)
			}
			msg.Ack()
			done <- msg.UUID
		})
		hot := make([]*message.Message, 20)
		for i := range hot {
			hot[i] = newOrder()
			outmill.SetTenantID(hot[i], "a")
			outmill.SetKey(hot[i], "hot")
		}
		require.NoError(t, s.pub.Publish(topic, hot...))
		receive(t, 1, blocked.began)
		s.publish(t, "a", 10)
		receive(t, 10, done)
		require.Equal(t, 4, s.mostOf("a"))
	})

	t.Run("a store that serves no turns is refused, and so are a topic that it does not serve in turn and OrderTopic", func(t *testing.T) {
		t.Parallel()
		s := openFairShop(t)
		cfg := quick()
		cfg.MaxInFlightPerTenant = 5
		_, err := subscriber.New(struct{ outmill.Queue }{s}, cfg, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "MaxInFlightPerTenant")
		sub := s.subscriber(t, cfg)
		for _, err := range []error{sub.SubscribeInitialize("mail"), refused(sub.Subscribe(t.Context(), "mail"))} {
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "FairTopics")
		}
		groups, err := s.Groups(t.Context())
		require.NoError(t, err)
		require.Empty(t, groups, "nothing is registered")
		require.NoError(t, sub.SubscribeInitialize(topic))
		for _, change := range []func(*subscriber.Config){
			func(c *subscriber.Config) { c.MaxInFlightPerTenant = -1 },
			func(c *subscriber.Config) { c.Order = outmill.OrderTopic },
		} {
			bad := cfg
			change(&bad)
			_, err := subscriber.New(s.meter, bad, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "MaxInFlightPerTenant")
		}
	})
}

func refused(_ <-chan *message.Message, err error) error { return err }

// TestSubscriber_TenantWalk has handlers that fail or take long while tenants are paused and
// subscribers begin and end, and checks at each claim that no tenant exceeds its limit.
func TestSubscriber_TenantWalk(t *testing.T) {
	t.Parallel()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			s := openFairShop(t)
			most := 1 + rand.IntN(4)
			cfg := onlyWoken(order, most)
			cfg.PollInterval = 20 * time.Millisecond
			cfg.Retry.MaxAttempts = 1000
			want := 0
			var mu sync.Mutex
			acked := map[string]int{}
			handle := func(msg *message.Message) {
				switch rand.IntN(12) {
				case 0:
					msg.Nack()
				case 1, 2:
					time.Sleep(rand.N(20 * time.Millisecond)) // A slow handler.
					fallthrough
				default:
					mu.Lock()
					acked[msg.UUID]++
					mu.Unlock()
					msg.Ack()
				}
			}
			rounds := testenv.Steps(2, 5)
			for round := range rounds {
				for tenant := range 4 {
					n := rand.IntN(25)
					s.publish(t, fmt.Sprint("t", tenant), n)
					want += n
				}
				sub, err := subscriber.New(s.meter, cfg, nil)
				require.NoError(t, err)
				serve(t.Context(), t, sub, handle)
				scope := roles.PauseScope{TenantID: fmt.Sprint("t", rand.IntN(4))}
				require.NoError(t, s.Pause(t.Context(), scope, "ann", "a walk"))
				reached := want * (round + 1) / (rounds + 2)
				require.Eventually(t, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(acked) >= min(reached, want/4)
				}, patience, time.Millisecond)
				_, err = s.Resume(t.Context(), scope)
				require.NoError(t, err)
				if round == rounds-1 {
					require.Eventually(t, func() bool {
						mu.Lock()
						defer mu.Unlock()
						return len(acked) == want
					}, patience, time.Millisecond)
				}
				if err := sub.Close(); err != nil && !errors.Is(err, outmill.ErrHandlersRunning) {
					require.NoError(t, err)
				}
			}
			for tenant := range 4 {
				require.LessOrEqual(t, s.mostOf(fmt.Sprint("t", tenant)), most)
			}
			for uuid, n := range acked {
				require.Equal(t, 1, n, "handlings of %s", uuid)
			}
		})
	}
}
