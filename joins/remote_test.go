package joins_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

// The suite of steps in other stores is in internal/allstores, because it runs over pairs of
// stores of several engines.

func openNamed(t *testing.T, name string, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	cfg.Name = name
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), file, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	return store
}

// sendTo sends one step and waits for the join.
func (p *plant) sendTo(t *testing.T, store string, payload []byte) outmill.JoinID {
	t.Helper()
	id := start(t, t.Context(), p.Store, of(1))
	require.NoError(t, joins.SendSteps(t.Context(), p.Store, id,
		joins.RemoteStep{Store: store, Topic: extracts[0], Message: message.NewMessage("", payload)}))
	wait := waitFor(id)
	failIfAnyStepFailed(&wait)
	require.NoError(t, joins.Wait(t.Context(), p.pub, wait))
	return id
}

func TestSendSteps(t *testing.T) {
	t.Parallel()

	t.Run("a step that cannot be sent is refused before anything is written", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		id := start(t, t.Context(), p.Store, of(3))
		tooLate := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
		for field, change := range map[string]func(*joins.RemoteStep){
			"store is empty":                      func(s *joins.RemoteStep) { s.Store = "" },
			"store has 256 characters":            func(s *joins.RemoteStep) { s.Store = strings.Repeat("x", 256) },
			"store is not valid UTF-8":            func(s *joins.RemoteStep) { s.Store = "a\xff" },
			"store has a NUL byte":                func(s *joins.RemoteStep) { s.Store = "a\x00" },
			"store begins or ends with a blank":   func(s *joins.RemoteStep) { s.Store = "a " },
			"topic is empty":                      func(s *joins.RemoteStep) { s.Topic = "" },
			"topic has 300 characters":            func(s *joins.RemoteStep) { s.Topic = strings.Repeat("x", 300) },
			"topic is join.wait: package joins":   func(s *joins.RemoteStep) { s.Topic = joins.Topic },
			"topic is join.remote: package joins": func(s *joins.RemoteStep) { s.Topic = joins.RemoteTopic },
			"topic is join.outcome: package":      func(s *joins.RemoteStep) { s.Topic = joins.OutcomeTopic },
			"joins are set on a message with a":   func(s *joins.RemoteStep) { outmill.SetDedupKey(s.Message, "k") },
			"joins are set on a remote step":      func(s *joins.RemoteStep) { joins.AddStep(s.Message, outmill.NewJoinID()) },
			"joins are set on a remote step: it":  func(s *joins.RemoteStep) { outmill.SetWaitsFor(s.Message, outmill.NewJoinID()) },
			`metadata "outmill_due_at" is "10000`: func(s *joins.RemoteStep) { outmill.SetDueAt(s.Message, tooLate) },
			"message id has 300 characters":       func(s *joins.RemoteStep) { s.Message.UUID = strings.Repeat("x", 300) },
		} {
			good := joins.RemoteStep{Store: "other", Topic: "extract"}
			bad := joins.RemoteStep{Store: "other", Topic: "extract", Message: message.NewMessage("", nil)}
			change(&bad)
			err := joins.SendSteps(t.Context(), p.Store, id, good, bad)
			require.ErrorIs(t, err, outmill.ErrInvalidRecord)
			require.ErrorContains(t, err, "1: "+field)
			require.Empty(t, p.records(t, "", ""))
		}
	})

	t.Run("a join that cannot get the steps is refused", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		steps := []joins.RemoteStep{{Store: "a", Topic: "extract"}, {Store: "b", Topic: "extract"}}
		require.ErrorIs(t, joins.SendSteps(t.Context(), p.Store, outmill.JoinID{}, steps...), outmill.ErrInvalidRecord)
		require.ErrorIs(t, joins.SendSteps(t.Context(), p.Store, outmill.NewJoinID(), steps...), joins.ErrUnknownJoin)
		require.ErrorIs(t, joins.SendSteps(t.Context(), p.Store, start(t, t.Context(), p.Store, of(1)), steps...), joins.ErrTooManySteps)
		require.ErrorIs(t, joins.SendSteps(t.Context(), nil, outmill.NewJoinID()), outmill.ErrInvalidConfig)
		require.Empty(t, p.records(t, "", ""))
	})

	t.Run("a nil payload stays nil, and no message is an empty one", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		id := start(t, t.Context(), p.Store, of(3))
		step := func(msg *message.Message) joins.RemoteStep {
			return joins.RemoteStep{Store: p.Name(), Topic: extracts[0], Message: msg}
		}
		require.NoError(t, joins.SendSteps(t.Context(), p.Store, id, step(message.NewMessage("nil", nil)),
			step(message.NewMessage("empty", message.Payload{})), step(nil)))
		arrived := p.listen(extracts[0])
		p.runRemote(t, p.router, joins.Among(p.Store))
		for range 3 {
			msg := receive(t, arrived)
			require.Empty(t, msg.Payload)
			require.Equal(t, msg.UUID == "nil", msg.Payload == nil, "the payload of %q is nil", msg.UUID)
		}
	})

	t.Run("the message may change after it was sent", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		id := start(t, t.Context(), p.Store, of(1))
		msg := message.NewMessage("", []byte("before"))
		require.NoError(t, joins.SendSteps(t.Context(), p.Store, id, joins.RemoteStep{Store: p.Name(), Topic: extracts[0], Message: msg}))
		copy(msg.Payload, "after!")
		arrived := p.listen(extracts[0])
		p.runRemote(t, p.router, joins.Among(p.Store))
		require.Equal(t, "before", string(receive(t, arrived).Payload))
	})
}

func TestRemote_Logs(t *testing.T) {
	t.Parallel()

	t.Run("a step that is settled already is logged with the name of the store", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		logs := journal.New()
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, logs)
		require.NoError(t, err)
		p.router = router
		id := start(t, t.Context(), p.Store, of(1))
		require.NoError(t, joins.SendSteps(t.Context(), p.Store, id, joins.RemoteStep{Store: "other", Topic: "extract"}))
		require.NoError(t, p.CancelJoin(t.Context(), id, "not needed"))
		p.runRemote(t, p.router, joins.Among(p.Store))
		p.requireSettled(t)
		require.NoError(t, p.router.Close())
		stores := []any{}
		for _, line := range logs.Lines(watermill.DebugLogLevel) {
			if line.Msg == "A step for another store is settled" {
				stores = append(stores, line.Fields["store"])
			}
		}
		require.Equal(t, []any{p.Name()}, stores)
	})
}

// runRemote runs the router with the handlers of joins and of steps in other stores.
func (p *plant) runRemote(t *testing.T, router *message.Router, stores func(string) (outmill.Store, error)) {
	t.Helper()
	_, err := joins.AddRemoteHandlers(router, p.sub, joins.RemoteConfig{Stores: stores, Snooze: 10 * time.Millisecond})
	require.NoError(t, err)
	p.run(t)
}

// bare is a store without any role of package storekit.
type bare struct{ outmill.Store }

// hanging is a store whose GetJoin hangs until its context ends.
type hanging struct {
	*sqlite.Store
	hangs atomic.Bool
	asked chan struct{}
}

func (h *hanging) GetJoin(ctx context.Context, id outmill.JoinID) (*roles.Join, error) {
	if h.hangs.Load() {
		h.asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Store.GetJoin(ctx, id)
}

// joinsOnly has joins, but no transactions.
type joinsOnly struct {
	outmill.Store
	roles.Joins
}

func TestAddRemoteHandlers(t *testing.T) {
	t.Parallel()

	t.Run("invalid settings are refused", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		good := joins.RemoteConfig{Stores: joins.Among(p.Store)}
		for _, err := range []error{
			second(joins.AddRemoteHandlers(nil, p.sub, good)),
			second(joins.AddRemoteHandlers(p.router, nil, good)),
			second(joins.AddRemoteHandlers(p.router, p.sub, joins.RemoteConfig{})),
			second(joins.AddRemoteHandlers(p.router, p.sub, joins.RemoteConfig{Stores: good.Stores, Snooze: -1})),
			second(joins.AddRemoteHandlers(p.router, p.sub, joins.RemoteConfig{Stores: good.Stores, CallTimeout: -1})),
		} {
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
		added, err := joins.AddRemoteHandlers(p.router, p.sub, good)
		require.NoError(t, err)
		require.Len(t, added, 2)
		require.ErrorIs(t, second(joins.AddRemoteHandlers(p.router, p.sub, good)), outmill.ErrInvalidConfig)
		good.Prefix = "second."
		require.NoError(t, second(joins.AddRemoteHandlers(p.router, p.sub, good)))
	})

	t.Run("a name that no store or two stores have is an error", func(t *testing.T) {
		t.Parallel()
		a, twin := openNamed(t, "a", sqlite.Config{}), openNamed(t, "a", sqlite.Config{})
		b := openNamed(t, "b", sqlite.Config{})
		found, err := joins.Among(a, b)("b")
		require.NoError(t, err)
		require.Same(t, b, found)
		var unknown *joins.UnknownStoreError
		_, err = joins.Among(a, b)(strings.Repeat("c", 1_000_000))
		require.ErrorAs(t, err, &unknown)
		require.Less(t, len(err.Error()), 300)
		require.ErrorIs(t, second(joins.Among(a, b, twin)("a")), outmill.ErrInvalidConfig)
		require.ErrorIs(t, second(joins.Among(a, nil)("b")), outmill.ErrInvalidConfig)
	})

	for name, other := range map[string]struct {
		stores func(t *testing.T, p *plant) func(string) (outmill.Store, error)
		reason string
	}{
		"a store without joins": {func(t *testing.T, p *plant) func(string) (outmill.Store, error) {
			return joins.Among(p.Store, bare{openNamed(t, "other", sqlite.Config{})})
		}, `store "other" has no joins`},
		"a store without transactions": {func(t *testing.T, p *plant) func(string) (outmill.Store, error) {
			store := openNamed(t, "other", sqlite.Config{})
			return joins.Among(p.Store, joinsOnly{store, store})
		}, `store "other" has no transactions`},
		"a store whose limit the message exceeds": {func(t *testing.T, p *plant) func(string) (outmill.Store, error) {
			return joins.Among(p.Store, openNamed(t, "other", sqlite.Config{MaxPayload: 10}))
		}, "payload has 100 bytes"},
		"a store that is refused for good": {func(t *testing.T, p *plant) func(string) (outmill.Store, error) {
			return func(name string) (outmill.Store, error) {
				if name == "other" {
					return nil, outmill.Permanent(errors.New("the customer has left"))
				}
				return p.Store, nil
			}
		}, "the customer has left"},
	} {
		t.Run("a step for "+name+" has failed, and says why", func(t *testing.T) {
			t.Parallel()
			p := newPlant(t)
			// A PoisonQueue outside the handler has the router ack what it has kept.
			poison, err := middleware.PoisonQueue(p.pub, "poison")
			require.NoError(t, err)
			p.router.AddMiddleware(poison)
			poisoned, failed := p.listen("poison"), p.listen(alert)
			p.runRemote(t, p.router, other.stores(t, p))
			id := p.sendTo(t, "other", make([]byte, 100))
			requireJoinOf(t, receive(t, failed), id, roles.JoinFailed, roles.ReasonStepFailed, "1", "0", "1")
			require.Contains(t, p.requireDead(t, joins.RemoteTopic).LastError, other.reason)
			receive(t, poisoned)
		})
	}

	t.Run("a store that hangs is left after a while, and asked again", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		other := &hanging{Store: openNamed(t, "other", sqlite.Config{}), asked: make(chan struct{}, 1000)}
		other.hangs.Store(true)
		completed := p.listen(transform)
		_, err := joins.AddRemoteHandlers(p.router, p.sub, joins.RemoteConfig{
			Stores: joins.Among(p.Store, other), Snooze: time.Millisecond, CallTimeout: 100 * time.Millisecond,
		})
		require.NoError(t, err)
		p.run(t)
		id := p.sendTo(t, "other", nil)
		for range 3 {
			receive(t, other.asked)
		}
		other.hangs.Store(false)
		q := plantOn(t, other.Store, other.Store, quick())
		q.extract()
		_, err = joins.AddRemoteHandlers(q.router, q.sub, joins.RemoteConfig{Stores: joins.Among(p.Store, other), Snooze: time.Millisecond})
		require.NoError(t, err)
		q.start(t)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
	})

	t.Run("messages of another subscriber are refused", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		foreign := make(oneMessage, 1)
		added, err := joins.AddRemoteHandlers(p.router, foreign, joins.RemoteConfig{Stores: joins.Among(p.Store)})
		require.NoError(t, err)
		failed := make(chan error, 2)
		added[0].AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				_, err := h(msg)
				failed <- err
				return nil, err
			}
		})
		foreign <- message.NewMessage("", nil)
		p.start(t)
		require.ErrorIs(t, receive(t, failed), outmill.ErrInvalidConfig)
	})
}

func second[T any](_ T, err error) error { return err }

// oneMessage is a subscriber that is not Outmill's.
type oneMessage chan *message.Message

func (o oneMessage) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	messages := make(chan *message.Message)
	go func() {
		defer close(messages)
		if topic == joins.RemoteTopic {
			messages <- <-o
		}
		<-ctx.Done()
	}()
	return messages, nil
}

func (oneMessage) Close() error { return nil }
