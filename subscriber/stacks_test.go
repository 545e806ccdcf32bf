package subscriber_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/subscriber"
)

// Behaviours of a handler in its calls for one message.
const (
	succeeds  = "succeeds"
	fails     = "fails"
	permanent = "is permanent"
	later     = "asks for another try"
	snoozes   = "snoozes"
	panics    = "panics"
)

var behaviours = []string{succeeds, fails, permanent, later, snoozes, panics}

// errorOf returns the result of the n-th call of a handler with this behaviour, n from 1.
func errorOf(behaviour string, n int) error {
	switch {
	case behaviour == fails:
		return errBroken
	case behaviour == permanent:
		return outmill.Permanent(errBroken)
	case behaviour == later && n == 1:
		return outmill.RetryAfter(errBroken, time.Millisecond)
	case behaviour == snoozes && n == 1:
		return outmill.Snooze(time.Millisecond)
	case behaviour == panics:
		panic(errBroken.Error())
	}
	return nil
}

// pile is a stack of middlewares, the first one outermost. It exists as Watermill's
// middlewares, and as a model of how each of them changes an error.
type pile []string

const (
	keepError    = "KeepError"
	retry        = "Retry"
	poisonAll    = "PoisonQueue"
	poisonSome   = "PoisonQueueWithFilter"
	timeout      = "Timeout"
	deduplicator = "Deduplicator"
	correlation  = "CorrelationID"
	recoverer    = "Recoverer"

	maxRetries  = 2
	maxAttempts = 3
)

// piles returns each of Watermill's middlewares alone, and every pair of them in both
// orders, each with KeepError outermost and innermost (in short tests, pairs with KeepError
// outermost only).
func piles() []pile {
	names := []string{retry, poisonAll, poisonSome, timeout, deduplicator, correlation, recoverer}
	var all []pile
	for _, outer := range names {
		all = append(all, pile{keepError, outer}, pile{outer, keepError})
		for _, inner := range names {
			if inner == outer {
				continue
			}
			all = append(all, pile{keepError, outer, inner})
			if !testing.Short() {
				all = append(all, pile{outer, inner, keepError})
			}
		}
	}
	return all
}

func (p pile) build(t *testing.T, s *shop, poisonTopic string) []message.HandlerMiddleware {
	t.Helper()
	built := make([]message.HandlerMiddleware, len(p))
	for i, name := range p {
		var err error
		switch name {
		case keepError:
			built[i] = subscriber.KeepError
		case retry:
			built[i] = middleware.Retry{MaxRetries: maxRetries, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond,
				Multiplier: 1}.Middleware
		case poisonAll:
			built[i], err = middleware.PoisonQueue(s.pub, poisonTopic)
		case poisonSome:
			built[i], err = middleware.PoisonQueueWithFilter(s.pub, poisonTopic, outmill.IsPermanent)
		case timeout:
			built[i] = middleware.Timeout(time.Minute)
		case deduplicator:
			byUUID := &middleware.Deduplicator{KeyFactory: func(msg *message.Message) (string, error) { return msg.UUID, nil }}
			built[i] = byUUID.Middleware
		case correlation:
			built[i] = middleware.CorrelationID
		case recoverer:
			built[i] = middleware.Recoverer
		}
		require.NoError(t, err)
	}
	return built
}

// fate is the final state of one message.
type fate struct {
	calls    int
	attempts int
	poisoned bool
	status   outmill.Status
	// because is a part of last_error if the record is dead.
	because string
}

// foretell computes the fate of a message from the model.
func (p pile) foretell(behaviour string) fate {
	m := &model{behaviour: behaviour}
	for {
		m.kept, m.nacked = nil, false
		err := m.run(p)
		if err == nil && !m.nacked {
			m.fate.status = outmill.StatusProcessed
			return m.fate
		}
		_, snoozed := outmill.SnoozeDelay(m.kept)
		switch {
		case snoozed:
		case outmill.IsPermanent(m.kept), m.fate.attempts+1 == maxAttempts:
			m.fate.status, m.fate.because = outmill.StatusDead, errBroken.Error()
			m.fate.attempts++
			return m.fate
		default:
			m.fate.attempts++
		}
	}
}

type model struct {
	behaviour string
	fate      fate
	seen      bool
	kept      error
	// nacked says that KeepError has nacked the message.
	nacked bool
}

// errPanic stands for a panic that has not been recovered yet.
var errPanic = errors.New("panic")

func (m *model) run(p pile) error {
	if len(p) == 0 {
		m.fate.calls++
		if m.behaviour == panics {
			return errPanic
		}
		return errorOf(m.behaviour, m.fate.calls)
	}
	inner := p[1:]
	switch p[0] {
	case keepError:
		m.kept = m.run(inner)
		if _, snoozed := outmill.SnoozeDelay(m.kept); snoozed {
			m.nacked = true
			return nil
		}
		return m.kept
	case retry:
		return m.retry(inner)
	case poisonAll, poisonSome:
		err := m.run(inner)
		if err != nil && !errors.Is(err, errPanic) && (p[0] == poisonAll || outmill.IsPermanent(err)) {
			m.fate.poisoned = true
			return nil
		}
		return err
	case deduplicator:
		if m.seen {
			return nil
		}
		m.seen = true
		return m.run(inner)
	case recoverer:
		if err := m.run(inner); errors.Is(err, errPanic) {
			return errBroken
		} else {
			return err
		}
	}
	return m.run(inner)
}

func (m *model) retry(inner pile) (err error) {
	for range maxRetries + 1 {
		err = m.run(inner)
		_, after := outmill.RetryAfterDelay(err)
		_, snoozed := outmill.SnoozeDelay(err)
		if err == nil || errors.Is(err, errPanic) || outmill.IsPermanent(err) || after || snoozed {
			return err
		}
	}
	return err
}

func TestSubscriber_Stacks(t *testing.T) {
	t.Parallel()

	// It plays every
	// behaviour of a handler through every pile, and compares what becomes of the
	// message with what the model says.
	t.Run("Watermill's middlewares alone and stacked in either order", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		for _, p := range piles() {
			t.Run(strings.Join(p, ", "), func(t *testing.T) {
				t.Parallel()
				p.play(t, s)
			})
		}
	})

	t.Run("the model of the piles agrees with Watermill", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, fate{calls: 1, status: outmill.StatusProcessed, poisoned: true}, pile{keepError, poisonAll, timeout}.foretell(fails))
		require.Equal(t, fate{calls: 9, attempts: 3, status: outmill.StatusDead, because: errBroken.Error()},
			pile{keepError, retry, timeout}.foretell(fails))
		require.Equal(t, fate{calls: 3, status: outmill.StatusProcessed, poisoned: true}, pile{poisonAll, retry, keepError}.foretell(fails))
		require.Equal(t, fate{calls: 2, status: outmill.StatusProcessed}, pile{keepError, retry, correlation}.foretell(snoozes))
		require.Equal(t, fate{calls: 1, status: outmill.StatusProcessed, poisoned: true}, pile{keepError, poisonAll}.foretell(snoozes))
		require.Equal(t, fate{calls: 2, status: outmill.StatusProcessed}, pile{poisonAll, keepError}.foretell(snoozes))
		// Watermill's Deduplicator treats the second try as a duplicate.
		require.Equal(t, fate{calls: 1, attempts: 1, status: outmill.StatusProcessed}, pile{keepError, deduplicator}.foretell(fails))
	})
}

func (p pile) play(t *testing.T, s *shop) {
	t.Helper()
	name := strings.Join(p, ".")
	calls := map[string]int{}
	var mu sync.Mutex
	handle := func(msg *message.Message) error {
		mu.Lock()
		calls[msg.UUID]++
		n := calls[msg.UUID]
		mu.Unlock()
		return errorOf(string(msg.Payload), n)
	}
	cfg := quick()
	cfg.Retry.MaxAttempts = maxAttempts
	s.routeTopic(t, name, cfg, handle, p.build(t, s, name+".poison")...)
	for _, behaviour := range behaviours {
		require.NoError(t, s.pub.Publish(name, message.NewMessage(behaviour, []byte(behaviour))))
	}
	records := s.settled(t, name)
	poisoned := s.uuids(t, name+".poison")
	mu.Lock()
	defer mu.Unlock()
	for _, behaviour := range behaviours {
		want := p.foretell(behaviour)
		rec := records[behaviour]
		got := fate{calls: calls[behaviour], attempts: rec.Attempts, poisoned: poisoned[behaviour], status: rec.Status, because: want.because}
		require.Equal(t, want, got, "a handler that %s", behaviour)
		require.Contains(t, rec.LastError, want.because)
	}
}

// settled waits until no record of the topic is due or leased, and returns the records by
// message UUID.
func (s *shop) settled(t *testing.T, of string) map[string]*outmill.Record {
	t.Helper()
	found := map[string]*outmill.Record{}
	require.Eventually(t, func() bool {
		records, err := s.List(t.Context(), outmill.ListQuery{Content: true, Topic: of})
		if err != nil || len(records) != len(behaviours) {
			return false
		}
		for _, rec := range records {
			if rec.Status != outmill.StatusProcessed && rec.Status != outmill.StatusDead {
				return false
			}
			found[rec.MessageID] = rec
		}
		return true
	}, patience, 10*time.Millisecond)
	return found
}

func (s *shop) uuids(t *testing.T, of string) map[string]bool {
	t.Helper()
	records, err := s.List(t.Context(), outmill.ListQuery{Content: true, Topic: of})
	require.NoError(t, err)
	found := map[string]bool{}
	for _, rec := range records {
		found[rec.MessageID] = true
	}
	return found
}
