package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/walks"
	"github.com/outmill/outmill/sqlite"
)

// scenario is a set of records and of failures of the broker.
type scenario struct {
	records []*outmill.Record
	// failures is the number of times that each message fails before it is accepted, and
	// failure is the error. doomed messages are never accepted.
	failures map[string]int
	failure  error
	doomed   map[string]bool
	// In every period of tries the broker is unavailable for away tries; 0 is never.
	period, away int
	// refused is the number of times that the broker refuses the second topic at first.
	refused int

	mu    sync.Mutex
	tries int
}

func drawScenario(t *rapid.T) *scenario {
	s := &scenario{failures: map[string]int{}, doomed: map[string]bool{}}
	numbers := map[string]int{}
	for range rapid.IntRange(1, 40).Draw(t, "records") {
		topic := rapid.SampledFrom([]string{"first", "second"}).Draw(t, "topic")
		key := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")
		id := nameOf(topic, key, numbers[topic+key])
		numbers[topic+key]++
		s.records = append(s.records, rec(topic, key, id))
		switch rapid.IntRange(0, 19).Draw(t, "luck") {
		case 0:
			s.doomed[id] = true
		case 1, 2:
			s.failures[id] = rapid.IntRange(1, 4).Draw(t, "failures")
		}
	}
	s.failure = rapid.SampledFrom([]error{errPoison, outmill.RetryAfter(errPoison, 0), outmill.ErrBrokerUnavailable,
		outmill.Snooze(0)}).Draw(t, "failure")
	s.period = rapid.SampledFrom([]int{0, 10, 40}).Draw(t, "period")
	s.away = rapid.IntRange(0, 6).Draw(t, "away")
	s.refused = rapid.IntRange(0, 5).Draw(t, "refused")
	return s
}

func (s *scenario) verdict(topic string, msg *message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	switch {
	case s.period > 0 && s.tries%s.period < s.away:
		return errAway
	case topic == "second" && s.refused > 0:
		s.refused--
		return fmt.Errorf("%w: not yet", outmill.ErrTopicUnavailable)
	case s.doomed[msg.UUID]:
		return outmill.Permanent(errors.New("too large"))
	case s.failures[msg.UUID] > 0:
		s.failures[msg.UUID]--
		return s.failure
	}
	return nil
}

func TestForwarder_Property(t *testing.T) {
	t.Parallel()

	t.Run("with any failures each message arrives in the order of its key or is dead for a reason", func(t *testing.T) {
		t.Parallel()
		walks.Check(t, 20, func(t *rapid.T) {
			s := drawScenario(t)
			cfg := quick()
			cfg.Retry.MaxAttempts = -1
			cfg.MaxErrorBackoff = time.Millisecond
			cfg.BatchSize = rapid.IntRange(1, 30).Draw(t, "batch size")
			cfg.Lanes = rapid.IntRange(1, 8).Draw(t, "lanes")
			cfg.KeyPolicy = rapid.SampledFrom([]outmill.KeyPolicy{outmill.KeyBlock, outmill.KeySkip, outmill.KeyPark}).Draw(t, "policy")
			cfg.Unordered = cfg.KeyPolicy == outmill.KeyBlock && rapid.IntRange(0, 3).Draw(t, "unordered") == 0
			arrived, dead := play(t, s, cfg, rapid.Bool().Draw(t, "batches"), rapid.IntRange(1, 2).Draw(t, "forwarders"))
			check(t, s, cfg, arrived, dead)
		})
	})
}

func play(t *rapid.T, s *scenario, cfg forwarder.Config, batches bool, forwarders int) (arrived, dead []string) {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, ":memory:", sqlite.Config{}, nil)
	require.NoError(t, err)
	defer store.Close()
	require.NoError(t, store.Ensure(ctx))
	require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: forwarder.DefaultGroup}))
	require.NoError(t, store.Append(ctx, s.records...))
	d := newBatchDestination(t)
	d.judge(s.verdict)
	var dest message.Publisher = d.destination
	if batches {
		dest = d
	}
	for range forwarders {
		fwd, err := forwarder.New(store, dest, cfg, nil)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- fwd.Run(ctx) }()
		<-fwd.Running()
		defer func() {
			require.NoError(t, fwd.Close())
			require.NoError(t, <-ended)
		}()
	}
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(list(t, store, ""), func(r *outmill.Record) bool { return r.Status != outmill.StatusDead })
	}, patience, tick, "something is stuck")
	return d.ids(), idsOf(list(t, store, outmill.StatusDead))
}

func check(t *rapid.T, s *scenario, cfg forwarder.Config, arrived, dead []string) {
	once := slices.Clone(arrived)
	slices.Sort(once)
	require.Equal(t, len(once), len(slices.Compact(once)), "nothing is published twice without a crash")
	ended := append(slices.Clone(arrived), dead...)
	slices.Sort(ended)
	require.Equal(t, idsOf(s.records), ended, "each record either arrived or is dead")
	lines := map[string][]string{}
	for _, r := range s.records {
		line := r.Topic + "/" + r.Key
		if r.Key == "" {
			line = r.MessageID
		}
		lines[line] = append(lines[line], r.MessageID)
	}
	for _, line := range lines {
		checkLine(t, s, cfg, line, arrived, dead)
	}
}

// checkLine checks the records of one key, in their order.
func checkLine(t *rapid.T, s *scenario, cfg forwarder.Config, line, arrived, dead []string) {
	var wantDead []string
	parked := false
	for _, id := range line {
		parked = parked || cfg.KeyPolicy == outmill.KeyPark && s.doomed[id]
		if parked || s.doomed[id] {
			wantDead = append(wantDead, id)
		}
	}
	ofLine := func(ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !slices.Contains(line, id) })
	}
	require.ElementsMatch(t, wantDead, ofLine(dead))
	if cfg.KeyPolicy != outmill.KeySkip && !cfg.Unordered {
		got := ofLine(arrived)
		require.True(t, slices.IsSorted(got), "out of order: %v", got)
	}
}
