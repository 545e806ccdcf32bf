package allstores

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

func TestRemoteJoins_Retention(t *testing.T) {
	t.Parallel()

	// The handler may be slow between its two questions. An outcome that counts in between, and a
	// store that keeps no joins, must not make it send the message again.
	for asked := 1; asked <= 3; asked++ {
		t.Run(fmt.Sprintf("a message is not sent again if its step is settled and forgotten before question %d", asked), func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, onSQLite, onForgetfulSQLite, onSQLite)
			id := f.start(joins.Join{ExpectedSteps: 2}, east, west)
			f.send(2)
			rec := f.mustClaim(home, joins.RemoteTopic)
			for fields(t, rec.Payload)["store"] != east {
				f.settle(home, rec, outmill.Snooze(0))
				rec = f.mustClaim(home, joins.RemoteTopic)
			}
			left := asked
			f.onOpen = func() {
				if left--; left != 0 {
					return
				}
				f.onOpen = nil
				f.do(east, true)
				f.bring(east)
				require.Eventually(t, func() bool {
					n, err := f.joins(east).DeleteJoins(t.Context(), 10)
					require.NoError(t, err)
					return n == 1
				}, patience, tickOfJoins)
			}
			f.settle(home, rec, f.handle(home, rec))
			if f.onOpen != nil {
				// There is no third question if the second one has shown that the step is settled.
				f.onOpen()
			}
			require.Empty(t, f.records(east, work, ""))
			f.do(west, true)
			f.finish(id, roles.JoinCompleted, 2, 0)
			require.Empty(t, f.records(east, work, ""))
		})
	}
}

// onForgetfulSQLite keeps no joins that have ended.
func onForgetfulSQLite(t *testing.T) outmill.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=synchronous(OFF)",
		sqlite.Config{BusyTimeout: time.Minute, RetainJoins: time.Nanosecond}, nil)
	require.NoError(t, err)
	return store
}

// listed is a discovery whose answer a test changes.
type listed struct {
	mu   sync.Mutex
	list tenants.Static
}

func (l *listed) Tenants(context.Context) ([]tenants.Tenant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list, nil
}

func (l *listed) set(list tenants.Static) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = list
}

// company is a set of tenants with two routers.
type company struct {
	set    *tenants.Set
	pub    *publisher.Publisher
	listed *listed
	all    tenants.Static
	ended  chan *message.Message

	mu sync.Mutex
	// effects counts, for each message, the transactions of its handler that have committed.
	effects map[string]int
}

func newCompany(t *testing.T, providers [3]string) *company {
	t.Helper()
	c := &company{listed: &listed{}, ended: make(chan *message.Message, 1000), effects: map[string]int{}}
	for i, name := range everywhere {
		store := stores[providers[i]](t)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		c.all = append(c.all, tenants.Tenant{Key: name, Store: store})
	}
	c.listed.set(c.all)
	c.set = openSet(t, tenants.Config{Discovery: c.listed, Ensure: true, Linger: -1}, len(c.all))
	var err error
	c.pub, err = publisher.New(c.set, publisher.Config{}, nil)
	require.NoError(t, err)
	for range 2 {
		c.runRouter(t)
	}
	return c
}

func (c *company) runRouter(t *testing.T) {
	t.Helper()
	cfg := quick()
	cfg.CloseTimeout = patience
	sub, err := subscriber.New(c.set, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	router := newRouter(t)
	_, err = joins.AddHandlers(router, sub, joins.Config{Store: c.set})
	require.NoError(t, err)
	_, err = joins.AddRemoteHandlers(router, sub, joins.RemoteConfig{Stores: c.set.Outbox, Snooze: 50 * time.Millisecond})
	require.NoError(t, err)
	box, err := inbox.New(c.set, inbox.Config{Consumer: work})
	require.NoError(t, err)
	router.AddConsumerHandler(work, work, sub, c.work).AddMiddleware(subscriber.KeepError, box.Middleware)
	for _, topic := range []string{ended, broke} {
		router.AddConsumerHandler(topic, topic, sub, func(msg *message.Message) error {
			c.ended <- msg.Copy()
			return nil
		}).AddMiddleware(subscriber.KeepError)
	}
	run(t, router)
}

// work fails for good if the payload says so, and otherwise at the first attempt of each
// second message.
func (c *company) work(msg *message.Message) error {
	delivery, _ := outmill.Delivery(msg.Context())
	switch {
	case string(msg.Payload) == "bad":
		return outmill.Permanent(errors.New("the source is broken"))
	case delivery.Attempt == 1 && msg.UUID[len(msg.UUID)-1]%2 == 0:
		return errors.New("timeout")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.effects[msg.UUID]++
	return nil
}

// begin starts a join with steps, in one transaction of the home.
func (c *company) begin(t *testing.T, name string, steps ...joins.RemoteStep) (id outmill.JoinID) {
	t.Helper()
	require.NoError(t, c.set.Transact(tenants.WithTenant(t.Context(), home), func(ctx context.Context) (err error) {
		id, err = joins.Start(ctx, c.set, joins.Join{ExpectedSteps: len(steps), GroupingKey: name})
		if err != nil {
			return err
		}
		if err := joins.SendSteps(ctx, c.set, id, steps...); err != nil {
			return err
		}
		return joins.Wait(ctx, c.pub, joins.WaitRequest{
			Join: id, FailIfAnyStepFailed: true, OnComplete: joins.Next{Topic: ended}, OnFail: joins.Next{Topic: broke},
		})
	}))
	return id
}

func (c *company) requireEnded(t *testing.T) *message.Message {
	t.Helper()
	select {
	case msg := <-c.ended:
		return msg
	case <-time.After(patience):
		require.FailNow(t, "no join has ended")
		return nil
	}
}

// requireEmpty waits until no message is left, apart from dead ones.
func (c *company) requireEmpty(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := c.set.List(t.Context(), outmill.ListQuery{Content: true, Limit: 1000})
		require.NoError(t, err)
		for _, rec := range left {
			if rec.Status != outmill.StatusDead {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond, "messages are left")
}

func TestRemoteJoins_Set(t *testing.T) {
	t.Parallel()
	for name, providers := range remotePairs {
		t.Run("subscribers of a set end each join once over "+name, func(t *testing.T) {
			t.Parallel()
			c := newCompany(t, providers)
			const many = 20
			want := map[string]string{}
			for i := range many {
				var steps []joins.RemoteStep
				failed := 0
				for j, store := range everywhere {
					payload := "good"
					if i%(j+3) == 0 {
						payload = "bad"
						failed++
					}
					msg := message.NewMessage(fmt.Sprintf("%d-%d", i, j), []byte(payload))
					outmill.SetTenantID(msg, store)
					steps = append(steps, joins.RemoteStep{Store: store, Topic: work, Message: msg})
				}
				key := fmt.Sprint(i)
				c.begin(t, key, steps...)
				want[key] = fmt.Sprintf("%d completed, %d failed", 3-failed, failed)
			}
			got := map[string]string{}
			for range many {
				metadata := c.requireEnded(t).Metadata
				got[metadata[joins.MetadataGroupingKey]] = fmt.Sprintf("%s completed, %s failed", metadata[joins.MetadataCompletedSteps],
					metadata[joins.MetadataFailedSteps])
			}
			require.Equal(t, want, got)
			c.requireEmpty(t)
			require.Empty(t, c.ended, "a join has ended twice")
			for uuid, n := range c.effects {
				require.Equal(t, 1, n, uuid)
			}
		})
	}

	t.Run("the outcomes of a home that is removed wait until it is back", func(t *testing.T) {
		t.Parallel()
		c := newCompany(t, remotePairs["SQLite with SQLite"])
		pause := roles.PauseScope{Topic: work}
		require.NoError(t, c.set.Pause(t.Context(), pause, "test", "the home is removed"))
		id := c.begin(t, "k", joins.RemoteStep{Store: east, Topic: work})
		require.Eventually(t, func() bool { return len(c.list(t, east, work)) == 1 }, patience, tickOfJoins)
		c.listed.set(c.all[1:])
		require.NoError(t, c.set.Refresh(t.Context()))
		_, err := c.set.Resume(t.Context(), pause)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			outcomes := c.list(t, east, joins.OutcomeTopic)
			return len(c.list(t, east, work)) == 0 && len(outcomes) == 1 && outcomes[0].Claims > 5
		}, patience, tickOfJoins)
		c.listed.set(c.all)
		require.NoError(t, c.set.Refresh(t.Context()))
		require.Equal(t, id.String(), c.requireEnded(t).Metadata[joins.MetadataJoinID])
		c.requireEmpty(t)
	})

	t.Run("a step for a tenant that is removed is sent when the tenant is back", func(t *testing.T) {
		t.Parallel()
		c := newCompany(t, remotePairs["SQLite with SQLite"])
		c.listed.set(c.all[:1])
		require.NoError(t, c.set.Refresh(t.Context()))
		id := c.begin(t, "k", joins.RemoteStep{Store: east, Topic: work}, joins.RemoteStep{Store: home, Topic: work})
		require.Eventually(t, func() bool {
			steps := c.list(t, home, joins.RemoteTopic)
			return len(steps) == 1 && steps[0].Claims > 5
		}, patience, tickOfJoins)
		c.listed.set(c.all)
		require.NoError(t, c.set.Refresh(t.Context()))
		require.Equal(t, id.String(), c.requireEnded(t).Metadata[joins.MetadataJoinID])
		c.requireEmpty(t)
	})
}

func (c *company) list(t *testing.T, tenant, topic string) []*outmill.Record {
	t.Helper()
	for _, one := range c.all {
		if one.Key == tenant {
			found, err := one.Store.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic})
			require.NoError(t, err)
			return found
		}
	}
	return nil
}
