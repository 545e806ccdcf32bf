package allstores

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/subscriber"
)

// denying is a store that refuses calls by the name of their method. The roles that it does not name are those
// of the store.
type denying struct {
	outmill.Store
	mu      sync.Mutex
	refused map[string]bool
}

func (s *denying) Unwrap() outmill.Store { return s.Store }

// errRefused has what an engine's error may have, and what nobody may read.
var errRefused = errors.New("connect postgres://app:hunter2@db/shop: refused")

func (s *denying) refuse(method string, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = map[string]bool{}
	}
	s.refused[method] = refused
}

func (s *denying) is(method string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused[method] {
		return errRefused
	}
	return nil
}

func (s *denying) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if err := s.is("RegisterGroup"); err != nil {
		return err
	}
	return s.Store.RegisterGroup(ctx, regs...)
}

func (s *denying) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	if err := s.is("Claim"); err != nil {
		return nil, err
	}
	return s.Store.Claim(ctx, req)
}

func (s *denying) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	if err := s.is("Extend"); err != nil && len(leases) > 0 {
		return nil, err
	}
	return s.Store.Extend(ctx, lease, leases)
}

func (s *denying) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	if err := s.is("Ack"); err != nil {
		return err
	}
	return s.Store.Ack(ctx, by, leases)
}

func (s *denying) Abandon(ctx context.Context, list []outmill.Settlement) error {
	if err := s.is("Abandon"); err != nil {
		return err
	}
	return s.Store.Abandon(ctx, list)
}

func (s *denying) Fail(ctx context.Context, list []outmill.Settlement) error {
	if err := s.is("Fail"); err != nil {
		return err
	}
	return s.Store.Fail(ctx, list)
}

func (s *denying) Snooze(ctx context.Context, list []outmill.Settlement) error {
	if err := s.is("Snooze"); err != nil {
		return err
	}
	return s.Store.Snooze(ctx, list)
}

func (s *denying) IdleWith() (with, self any) { return s, s }

// AreIdle has the janitor do its chores.
func (s *denying) AreIdle(context.Context, []any) ([]bool, error) { return []bool{false}, nil }

func (s *denying) ReapExpired(ctx context.Context, limit int) (int, error) {
	if err := s.is("ReapExpired"); err != nil {
		return 0, err
	}
	return s.Store.ReapExpired(ctx, limit)
}

func (s *denying) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	if err := s.is("DeleteDedupKeys"); err != nil {
		return 0, err
	}
	return s.Store.DeleteDedupKeys(ctx, limit)
}

func (s *denying) Maintain(ctx context.Context) (bool, error) {
	if err := s.is("Maintain"); err != nil {
		return false, err
	}
	return s.Store.Maintain(ctx)
}

func (s *denying) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	if err := s.is("Stats"); err != nil {
		return nil, err
	}
	return s.Store.Stats(ctx, limit)
}

// failingCase is a method of a store, the call that fails with it, and the outcome that makes that call.
type failingCase struct {
	method, call, part string
	outcome            error
	ends               bool
}

var failingCases = []failingCase{
	{method: "Claim", call: storekit.CallClaim, ends: true},
	{method: "Ack", call: storekit.CallSettle, part: "ack", ends: true},
	{method: "Abandon", call: storekit.CallSettle, part: "abandon", outcome: errors.New("boom"), ends: true},
	{method: "Fail", call: storekit.CallSettle, part: "fail", outcome: outmill.Permanent(errors.New("never")), ends: true},
	{method: "Snooze", call: storekit.CallSettle, part: "snooze", outcome: outmill.Snooze(time.Millisecond), ends: true},
	{method: "ReapExpired", call: storekit.CallUpkeep, part: "reap ended leases"},
	{method: "DeleteDedupKeys", call: storekit.CallUpkeep, part: "delete dedup keys"},
	{method: "Stats", call: storekit.CallUpkeep, part: "look for records that nobody reads"},
}

// failingRig is a subscriber of a store that refuses calls, and what reports on them.
type failingRig struct {
	*testing.T
	store  *denying
	sub    *subscriber.Subscriber
	health *monitor.Health
	// outcome is what the handler returns. A message "hold" is held until release is closed; without its lease it has failed.
	mu      sync.Mutex
	outcome error
	release chan struct{}
}

// onEachStoreAndMemory is onEachStore with the store in memory.
func onEachStoreAndMemory(t *testing.T, test func(t *testing.T, store outmill.Store)) {
	t.Helper()
	onEachStore(t, func(t *testing.T, s site) { test(t, s.store) })
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		store := memstore.New(memstore.NewDatabase(), memstore.Options{})
		require.NoError(t, store.Ensure(t.Context()))
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		test(t, store)
	})
}

func newFailingRig(t *testing.T, inner outmill.Store) *failingRig {
	r := &failingRig{T: t, store: &denying{Store: inner}, release: make(chan struct{})}
	cfg := quick()
	cfg.Retry.MaxAttempts = -1
	cfg.UpkeepInterval, cfg.Lease, cfg.MaxErrorBackoff, cfg.Worker = 20*time.Millisecond, 2*time.Second, 20*time.Millisecond, "reader"
	var err error
	r.sub, err = subscriber.New(r.store, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.sub.Close()) })
	r.health, err = monitor.NewHealth(inner, monitor.HealthConfig{
		Subscribers: map[string]monitor.HealthSubscriber{"orders": r.sub}, FailingFor: time.Nanosecond, CacheFor: time.Nanosecond,
	})
	require.NoError(t, err)
	router := newRouter(t)
	router.AddMiddleware(subscriber.KeepError)
	router.AddConsumerHandler("h", topic, r.sub, r.handle)
	run(t, router)
	return r
}

func (r *failingRig) handle(msg *message.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if string(msg.Payload) == "hold" {
		r.mu.Unlock()
		var lost error
		select {
		case <-r.release:
		case <-msg.Context().Done():
			// The record comes again, so that there is a lease to extend also when this test is slow.
			lost = msg.Context().Err()
		}
		r.mu.Lock()
		if lost != nil {
			return lost
		}
	}
	return r.outcome
}

func (r *failingRig) returns(outcome error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcome = outcome
}

func (r *failingRig) publish(payload string) {
	r.Helper()
	pub, err := publisher.New(r.store, publisher.Config{}, nil)
	require.NoError(r, err)
	require.NoError(r, pub.Publish(topic, message.NewMessage(watermill.NewUUID(), []byte(payload))))
}

// fails waits until the call fails, and was tried again.
func (r *failingRig) fails(c failingCase) {
	r.Helper()
	require.Eventually(r, func() bool {
		return slices.ContainsFunc(r.sub.FailingCalls(), func(f outmill.FailingCall) bool {
			return f.Call == c.call && f.Part == c.part && f.Times >= 2
		})
	}, patience, 2*time.Millisecond, "%s: %v", c.method, r.sub.FailingCalls())
}

func (r *failingRig) works() {
	r.Helper()
	require.Eventually(r, func() bool { return len(r.sub.FailingCalls()) == 0 }, patience, 2*time.Millisecond, "%v", r.sub.FailingCalls())
	require.Eventually(r, func() bool { return len(r.doctor(time.Nanosecond)) == 0 }, patience, 10*time.Millisecond)
}

// doctor has the calls that doctor finds in the database.
func (r *failingRig) doctor(limit time.Duration) []monitor.Problem {
	r.Helper()
	report, err := monitor.Doctor(r.Context(), r.store.Store, monitor.DoctorConfig{FailingFor: limit})
	require.NoError(r, err)
	return slices.DeleteFunc(report.Problems, func(p monitor.Problem) bool { return p.Kind != "call_fails" })
}

// ready has the answer of /readyz.
func (r *failingRig) ready() (code int, body string, calls []monitor.Problem) {
	r.Helper()
	w := httptest.NewRecorder()
	r.health.Ready().ServeHTTP(w, httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/readyz", nil))
	body = w.Body.String()
	var report monitor.Report
	require.NoError(r, json.Unmarshal([]byte(body), &report))
	return w.Code, body, slices.DeleteFunc(report.Problems, func(p monitor.Problem) bool { return p.Kind != "call_fails" })
}

func (r *failingRig) isReported(c failingCase) {
	r.Helper()
	require.Eventually(r, func() bool { return len(r.doctor(time.Nanosecond)) > 0 }, patience, 10*time.Millisecond, c.method)
	found := r.doctor(time.Nanosecond)[0]
	require.Equal(r, "reader", found.Subject)
	require.Equal(r, outmill.DefaultGroup, found.Group)
	require.WithinDuration(r, time.Now(), found.Since, patience)
	code, body, calls := r.ready()
	require.NotEmpty(r, calls, body)
	require.Equal(r, "orders", calls[0].Subject)
	require.False(r, calls[0].Since.IsZero())
	for _, p := range []monitor.Problem{found, calls[0]} {
		require.Contains(r, p.Text, "postgres://app:xxxxx@db/shop: refused")
		require.Contains(r, p.Text, " failed, the last with")
		require.NotContains(r, p.Text, "hunter2")
		require.Contains(r, p.Text, c.part)
		require.Equal(r, c.ends, p.Severity == monitor.Failure, "%v", p)
	}
	require.NotContains(r, body, "hunter2")
	want := http.StatusOK
	if c.ends {
		want = http.StatusServiceUnavailable
	}
	require.Equal(r, want, code, body)
	require.Empty(r, r.doctor(0), "it has not failed for a minute")
}

func TestFailingCalls(t *testing.T) {
	t.Parallel()

	t.Run("doctor, the probe and the subscriber name each call that fails, and no longer when it works again", func(t *testing.T) {
		t.Parallel()
		onEachStoreAndMemory(t, func(t *testing.T, store outmill.Store) {
			r := newFailingRig(t, store)
			for _, c := range failingCases {
				r.works()
				r.returns(c.outcome)
				r.store.refuse(c.method, true)
				r.publish("go on")
				r.fails(c)
				r.isReported(c)
				r.returns(nil)
				r.store.refuse(c.method, false)
			}
			r.works()
		})
	})

	t.Run("doctor, the probe and the subscriber name extensions of leases that fail", func(t *testing.T) {
		t.Parallel()
		onEachStoreAndMemory(t, func(t *testing.T, store outmill.Store) {
			r := newFailingRig(t, store)
			r.store.refuse("Extend", true)
			r.publish("hold")
			c := failingCase{method: "Extend", call: storekit.CallExtend, ends: true}
			r.fails(c)
			r.isReported(c)
			r.store.refuse("Extend", false)
			require.Eventually(t, func() bool { return len(r.sub.FailingCalls()) == 0 }, patience, 2*time.Millisecond)
			close(r.release)
		})
	})

	t.Run("the probe and the subscriber name registrations that fail, and doctor that the group is not seen", func(t *testing.T) {
		t.Parallel()
		onEachStoreAndMemory(t, func(t *testing.T, store outmill.Store) {
			r := newFailingRig(t, store)
			r.store.refuse("RegisterGroup", true)
			r.fails(failingCase{call: storekit.CallRegister})
			code, body, calls := r.ready()
			require.Len(t, calls, 1, body)
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.Contains(t, calls[0].Text, "No registration of the subscriber")
			require.Eventually(t, func() bool {
				report, err := monitor.Doctor(t.Context(), store, monitor.DoctorConfig{Unseen: 50 * time.Millisecond})
				require.NoError(t, err)
				return slices.ContainsFunc(report.Problems, func(p monitor.Problem) bool { return p.Kind == "group_unseen" })
			}, patience, 10*time.Millisecond)
			r.store.refuse("RegisterGroup", false)
			r.works()
		})
	})

	t.Run("maintenance that fails is named by a janitor that runs alone, and not after it has ended", func(t *testing.T) {
		t.Parallel()
		onEachStoreAndMemory(t, func(t *testing.T, inner outmill.Store) {
			store := &denying{Store: inner}
			store.refuse("Maintain", true)
			j, err := janitor.New(store, janitor.Config{}, nil)
			require.NoError(t, err)
			h, err := monitor.NewHealth(inner, monitor.HealthConfig{
				Janitors: map[string]monitor.FailingCaller{"nightly": j}, FailingFor: time.Nanosecond,
			})
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- j.Run(context.WithoutCancel(t.Context())) }()
			require.Eventually(t, func() bool { return len(j.FailingCalls()) == 1 }, patience, 10*time.Millisecond)
			report, err := h.Check(t.Context())
			require.NoError(t, err)
			i := slices.IndexFunc(report.Problems, func(p monitor.Problem) bool { return p.Kind == "call_fails" })
			require.GreaterOrEqual(t, i, 0, "%v", report.Problems)
			require.Equal(t, "nightly", report.Problems[i].Subject)
			require.Contains(t, report.Problems[i].Text, "No maintenance of the store of the janitor")
			require.NoError(t, j.Close())
			require.NoError(t, <-ended)
			require.Empty(t, j.FailingCalls())
		})
	})

	t.Run("a forwarder names its failing calls, the registration before it forwards among them", func(t *testing.T) {
		t.Parallel()
		onEachStoreAndMemory(t, func(t *testing.T, inner outmill.Store) {
			store := &denying{Store: inner}
			store.refuse("RegisterGroup", true)
			broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, nil)
			fwd, err := forwarder.New(store, broker, forwarder.Config{
				UpkeepInterval: 20 * time.Millisecond, MaxErrorBackoff: 20 * time.Millisecond, PollInterval: 10 * time.Millisecond, Worker: "reader",
			}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, fwd.Close()) })
			ended := make(chan error, 1)
			go func() { ended <- fwd.Run(context.WithoutCancel(t.Context())) }()
			names := func() []string {
				calls := map[string]bool{}
				for _, call := range fwd.FailingCalls() {
					calls[call.Call] = true
				}
				return slices.Sorted(maps.Keys(calls))
			}
			is := func(want ...string) func() bool { return func() bool { return slices.Equal(want, names()) } }
			require.Eventually(t, is(storekit.CallRegister), patience, 2*time.Millisecond)
			store.refuse("RegisterGroup", false)
			require.Eventually(t, is(), patience, 2*time.Millisecond)
			store.refuse("Claim", true)
			require.Eventually(t, is(storekit.CallClaim), patience, 2*time.Millisecond)
			require.Eventually(t, func() bool {
				groups, err := inner.Groups(t.Context())
				require.NoError(t, err)
				return slices.ContainsFunc(groups[0].Workers, func(w outmill.WorkerInfo) bool {
					return w.Name == "reader" && len(w.Failing) == 1 && w.Failing[0].Call == storekit.CallClaim
				})
			}, patience, 10*time.Millisecond)
			require.NoError(t, fwd.Close())
			require.NoError(t, <-ended)
			require.Empty(t, fwd.FailingCalls())
		})
	})
}
