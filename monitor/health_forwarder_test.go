package monitor_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// refusing is a broker that answers each message with its error, if it has one.
type refusing struct{ err atomic.Pointer[error] }

func (r *refusing) Publish(string, ...*message.Message) error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}
func (r *refusing) Close() error { return nil }

// failing is a store whose claims fail once told so.
type failing struct {
	*sqlite.Store
	broken atomic.Bool
}

func (f *failing) Claim(ctx context.Context, request outmill.ClaimRequest) ([]*outmill.Record, error) {
	if f.broken.Load() {
		return nil, errors.New("broken")
	}
	return f.Store.Claim(ctx, request)
}

// doctorFinds waits until the doctor reports the kind once, and returns the problem.
func doctorFinds(t *testing.T, store outmill.Inspector, kind string) monitor.Problem {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.Contains(kindsOf(examine(t, store, monitor.DoctorConfig{})), kind)
	}, time.Minute, 10*time.Millisecond)
	return one(t, examine(t, store, monitor.DoctorConfig{}), kind)
}

func TestHealth_Forwarder(t *testing.T) {
	t.Parallel()

	// start runs a forwarder, and returns its health.
	start := func(t *testing.T, store outmill.Store, to message.Publisher) *monitor.Health {
		t.Helper()
		f, err := forwarder.New(store, to, forwarder.Config{PollInterval: 10 * time.Millisecond, MaxErrorBackoff: 50 * time.Millisecond}, nil)
		require.NoError(t, err)
		require.Zero(t, f.ClaimedAt(), "it does not run yet")
		ran := make(chan error, 1)
		go func() { ran <- f.Run(t.Context()) }()
		t.Cleanup(func() {
			require.NoError(t, f.Close())
			require.NoError(t, <-ran)
			require.Zero(t, f.ClaimedAt(), "it does not run any more")
		})
		<-f.Running()
		return health(t, store, monitor.HealthConfig{
			Forwarders: map[string]monitor.HealthForwarder{"kafka": f}, MaxUnclaimed: 2 * time.Second,
		})
	}
	// eventually waits until the report has exactly these kinds.
	eventually := func(t *testing.T, h *monitor.Health, kinds ...string) monitor.Report {
		t.Helper()
		var report monitor.Report
		require.Eventually(t, func() bool {
			report = check(t, h)
			return len(report.Problems) == len(kinds) && (len(kinds) == 0 || report.Problems[0].Kind == kinds[0])
		}, time.Minute, 10*time.Millisecond)
		require.True(t, report.Ready(), "a restart does not help")
		return report
	}

	t.Run("a breaker that is open, and closes again; doctor has it from the store", func(t *testing.T) {
		t.Parallel()
		store, to := open(t, sqlite.Config{EnsureSchema: true}), &refusing{}
		h := start(t, store, to)
		eventually(t, h)
		away := outmill.ErrBrokerUnavailable
		to.err.Store(&away)
		appendOne(t, store)
		require.Equal(t, "kafka", eventually(t, h, "breaker_open").Problems[0].Subject)
		reported := doctorFinds(t, store, "breaker_open")
		require.Equal(t, "forwarder", reported.Group)
		require.Contains(t, reported.Text, "has accepted no message since")
		to.err.Store(nil)
		eventually(t, h)
	})

	t.Run("a topic that the broker refuses", func(t *testing.T) {
		t.Parallel()
		store, to := open(t, sqlite.Config{EnsureSchema: true}), &refusing{}
		h := start(t, store, to)
		refused := outmill.ErrTopicUnavailable
		to.err.Store(&refused)
		appendOne(t, store)
		require.Contains(t, eventually(t, h, "topics_held").Problems[0].Text, "orders")
		reported := doctorFinds(t, store, "topics_held")
		require.Equal(t, "orders", reported.Topic)
		require.Contains(t, reported.Text, "has refused the topic since")
	})

	t.Run("claims that fail for too long", func(t *testing.T) {
		t.Parallel()
		store := &failing{Store: open(t, sqlite.Config{EnsureSchema: true})}
		h := start(t, store, &refusing{})
		eventually(t, h)
		store.broken.Store(true)
		p := eventually(t, h, "not_claiming").Problems[0]
		require.False(t, p.Since.IsZero())
		store.broken.Store(false)
		eventually(t, h)
	})

	t.Run("a forwarder that is nil is refused", func(t *testing.T) {
		t.Parallel()
		_, err := monitor.NewHealth(open(t, sqlite.Config{}), monitor.HealthConfig{Forwarders: map[string]monitor.HealthForwarder{"kafka": nil}})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "Forwarders")
	})
}

func TestHealth_Subscriber(t *testing.T) {
	t.Parallel()

	t.Run("a subscriber whose claims fail for too long, and one without a subscription", func(t *testing.T) {
		t.Parallel()
		store := &failing{Store: open(t, sqlite.Config{EnsureSchema: true})}
		config := subscriber.Config{PollInterval: 10 * time.Millisecond, MaxErrorBackoff: 50 * time.Millisecond}
		s, err := subscriber.New(store, config, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		h := health(t, store, monitor.HealthConfig{
			Subscribers: map[string]monitor.HealthSubscriber{"billing": s}, MaxUnclaimed: 500 * time.Millisecond,
		})
		require.Zero(t, s.ClaimedAt(), "it does not read yet")

		ctx, unsubscribe := context.WithCancel(t.Context())
		messages, err := s.Subscribe(ctx, "orders")
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), s.ClaimedAt(), time.Minute)
		store.broken.Store(true)
		var report monitor.Report
		require.Eventually(t, func() bool { report = check(t, h); return len(report.Problems) == 1 }, time.Minute, 10*time.Millisecond)
		p := report.Problems[0]
		require.Equal(t, []string{"not_claiming", "billing", "warning"}, []string{p.Kind, p.Subject, report.Status})
		require.Contains(t, p.Text, "subscriber has not claimed")
		require.WithinDuration(t, s.ClaimedAt(), p.Since, 0)

		store.broken.Store(false)
		require.Eventually(t, func() bool { return len(check(t, h).Problems) == 0 }, time.Minute, 10*time.Millisecond)

		unsubscribe()
		for range messages {
		}
		require.Eventually(t, func() bool { return s.ClaimedAt().IsZero() }, time.Minute, time.Millisecond, "it reads no more")
		before := time.Now()
		_, err = s.Subscribe(t.Context(), "orders")
		require.NoError(t, err)
		require.False(t, s.ClaimedAt().Before(before), "the time without a subscription does not count")
	})

	t.Run("a subscriber whose message comes again and again is a warning with the number", func(t *testing.T) {
		t.Parallel()
		reportOf := func(times int) monitor.Report {
			subscribers := map[string]monitor.HealthSubscriber{"billing": repeating(times)}
			return check(t, health(t, open(t, sqlite.Config{EnsureSchema: true}), monitor.HealthConfig{Subscribers: subscribers}))
		}
		report := reportOf(12)
		require.Len(t, report.Problems, 1)
		p := report.Problems[0]
		require.Equal(t, []string{"comes_again", "billing", "warning"}, []string{p.Kind, p.Subject, report.Status})
		require.Contains(t, p.Text, "12 times in a row")
		require.Empty(t, reportOf(0).Problems)
	})

	t.Run("a subscriber that is nil is refused", func(t *testing.T) {
		t.Parallel()
		config := monitor.HealthConfig{Subscribers: map[string]monitor.HealthSubscriber{"billing": nil}}
		_, err := monitor.NewHealth(open(t, sqlite.Config{}), config)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "Subscribers")
	})
}

// repeating is a subscriber with a message that came again so often.
type repeating int

func (repeating) ClaimedAt() time.Time { return time.Now() }
func (r repeating) Repeats() int       { return int(r) }
