package tenants_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// fleet is a set over SQLite files.
type fleet struct {
	*testing.T
	set    *tenants.Set
	pub    *publisher.Publisher
	stores map[string]*sqlite.Store
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{T: t, stores: map[string]*sqlite.Store{}}
	dir := t.TempDir()
	var list tenants.Static
	for i := range n {
		key := fmt.Sprintf("tenant%02d", i)
		file := "file:" + filepath.Join(dir, key+".db") + "?_pragma=synchronous(OFF)"
		store, err := sqlite.Open(t.Context(), file, sqlite.Config{BusyTimeout: soon}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		f.stores[key] = store
		list = append(list, tenants.Tenant{Key: key, Store: store})
	}
	var err error
	f.set, err = tenants.New(t.Context(), tenants.Config{Discovery: list, Ensure: true, CallTimeout: patient}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.set.Close()) })
	awaitOpen(t, f.set, n)
	f.pub, err = publisher.New(f.set, publisher.Config{}, nil)
	require.NoError(t, err)
	return f
}

func (f *fleet) message(tenant, id string) *message.Message {
	msg := message.NewMessage(id, []byte(tenant))
	outmill.SetTenantID(msg, tenant)
	outmill.SetKey(msg, "the same in all")
	return msg
}

// tally counts what arrived, and what was under the wrong tenant.
type tally struct {
	mu      sync.Mutex
	arrived map[string]int
	wrong   []string
}

func (c *tally) add(id string, right bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arrived == nil {
		c.arrived = map[string]int{}
	}
	c.arrived[id]++
	if !right {
		c.wrong = append(c.wrong, id)
	}
}

func (c *tally) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.arrived)
}

// broker is what a forwarder publishes to.
type broker struct{ *tally }

func (b broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		b.add(msg.UUID, msg.Metadata.Get(outmill.MetadataTenantID) == string(msg.Payload))
	}
	return nil
}

func (broker) Close() error { return nil }

func TestSet_Fleet(t *testing.T) {
	t.Parallel()

	t.Run("a subscriber and a forwarder serve 50 tenants on SQLite, each record where it belongs (OBX-066)", func(t *testing.T) {
		t.Parallel()
		const tenantsN, perTenant = 50, 6
		f := newFleet(t, tenantsN)
		// A lease that ends on a busy machine would bring its message once more, as it should.
		sub, err := subscriber.New(f.set, subscriber.Config{Order: outmill.OrderKey, Lease: 5 * soon}, nil)
		require.NoError(t, err)
		forwarded := &tally{}
		fwd, err := forwarder.New(f.set, broker{forwarded}, forwarder.Config{
			Topics: outmill.Topics{Include: []string{topic}}, Lease: 5 * soon,
		}, nil)
		require.NoError(t, err)
		running := make(chan error, 1)
		go func() { running <- fwd.Run(context.WithoutCancel(t.Context())) }()
		messages, err := sub.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		<-fwd.Running()

		var want []string
		for key, store := range f.stores {
			for i := range perTenant {
				id := fmt.Sprintf("%s/%d", key, i)
				msg := f.message(key, id)
				if i%3 == 0 {
					require.NoError(t, f.pub.Publish(topic, msg))
					want = append(want, id)
					continue
				}
				// In a transaction of the tenant's database, every other one of which rolls back.
				tx, err := store.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				require.NoError(t, f.pub.WithContext(store.WithTx(t.Context(), tx)).Publish(topic, msg))
				if i%3 == 1 {
					require.NoError(t, tx.Commit())
					want = append(want, id)
				} else {
					require.NoError(t, tx.Rollback())
				}
			}
		}
		handled := &tally{}
		for handled.count() < len(want) {
			msg := <-messages
			info, ok := outmill.Delivery(msg.Context())
			require.True(t, ok)
			handled.add(msg.UUID, info.Store == string(msg.Payload))
			// A message without a tenant id goes to the store of the message that is handled.
			followUp := message.NewMessage("after "+msg.UUID, msg.Payload)
			followUp.SetContext(msg.Context())
			require.NoError(t, f.pub.Publish("done", followUp))
			msg.Ack()
		}
		require.Eventually(t, func() bool { return forwarded.count() == len(want) }, soon, tick)
		require.NoError(t, sub.Close())
		require.NoError(t, fwd.Close())
		require.NoError(t, <-running)

		for _, c := range []*tally{handled, forwarded} {
			require.Empty(t, c.wrong)
			for _, id := range want {
				require.Equal(t, 1, c.arrived[id], id)
			}
		}
		for key, store := range f.stores {
			left, err := store.List(t.Context(), outmill.ListQuery{Content: true})
			require.NoError(t, err)
			require.Len(t, left, perTenant*2/3, key)
			for _, rec := range left {
				require.Equal(t, "done", rec.Topic, "all others are acked")
				require.Equal(t, key, string(rec.Payload))
			}
		}
	})

	t.Run("an inbox handles each message once, in a transaction of its tenant", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 3)
		box, err := inbox.New(f.set, inbox.Config{Consumer: "billing", Publisher: f.pub})
		require.NoError(t, err)
		sub, err := subscriber.New(f.set, subscriber.Config{}, nil)
		require.NoError(t, err)
		messages, err := sub.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		for _, store := range f.stores {
			_, err := store.DB().ExecContext(t.Context(), `CREATE TABLE bills (id TEXT)`)
			require.NoError(t, err)
		}
		for key := range f.stores {
			// The second is a duplicate.
			require.NoError(t, f.pub.Publish(topic, f.message(key, "bill of "+key), f.message(key, "bill of "+key)))
		}
		handle := box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			store := f.stores[string(msg.Payload)]
			tx, ok := store.Tx(msg.Context())
			require.True(t, ok)
			if _, err := tx.ExecContext(msg.Context(), `INSERT INTO bills VALUES (?)`, msg.UUID); err != nil {
				return nil, err
			}
			return nil, f.pub.WithContext(msg.Context()).Publish("billed", message.NewMessage("after "+msg.UUID, nil))
		})
		for range 2 * len(f.stores) {
			msg := <-messages
			_, err := handle(msg)
			require.NoError(t, err)
			msg.Ack()
		}
		require.NoError(t, sub.Close())
		for key, store := range f.stores {
			var bills int
			require.NoError(t, store.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM bills`).Scan(&bills))
			require.Equal(t, 1, bills)
			left, err := store.List(t.Context(), outmill.ListQuery{})
			require.NoError(t, err)
			require.Equal(t, []string{"after bill of " + key}, ids(left))
		}
	})
}

func TestSet_Transact(t *testing.T) {
	t.Parallel()

	t.Run("runs in the tenant that the context names, and publishes there", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		ctx := tenants.WithTenant(t.Context(), "tenant01")
		require.NoError(t, f.set.Transact(ctx, func(ctx context.Context) error {
			tx, ok := f.stores["tenant01"].Tx(ctx)
			require.True(t, ok)
			// A nested call takes part.
			return f.set.Transact(ctx, func(ctx context.Context) error {
				again, ok := f.stores["tenant01"].Tx(ctx)
				require.True(t, ok)
				require.Same(t, tx, again)
				return f.pub.WithContext(ctx).Publish(topic, message.NewMessage("m", nil))
			})
		}))
		err := f.set.Transact(ctx, func(ctx context.Context) error {
			require.NoError(t, f.pub.WithContext(ctx).Publish(topic, message.NewMessage("never", nil)))
			return errAway
		})
		require.ErrorIs(t, err, errAway)
		left, err := f.stores["tenant01"].List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.Equal(t, []string{"m"}, ids(left))
	})

	t.Run("refuses the transaction of another member than the context names", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		tx, err := f.stores["tenant00"].DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		ctx := tenants.WithTenant(f.stores["tenant00"].WithTx(t.Context(), tx), "tenant01")
		err = f.set.Transact(ctx, func(context.Context) error { return nil })
		require.ErrorIs(t, err, outmill.ErrForeignTx)
	})

	t.Run("a note checks the lease in the member that has delivered the message, and none in another one", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		require.NoError(t, f.set.RegisterGroup(t.Context(), outmill.Registration{}))
		require.NoError(t, f.pub.Publish(topic, f.message("tenant00", "m")))
		found, err := f.set.Claim(t.Context(), request(10))
		require.NoError(t, err)
		require.Len(t, found, 1)
		put := func(key, consumer string) error {
			return f.set.Transact(tenants.WithTenant(t.Context(), key), func(ctx context.Context) error {
				_, err := f.set.PutNote(ctx, roles.Note{
					Consumer: consumer, Key: "m", Retention: time.Hour, Lease: found[0].Lease(),
				}, soon)
				return err
			})
		}
		require.NoError(t, put("tenant00", "first"))
		require.NoError(t, f.set.Ack(t.Context(), "", leasesOf(found)))
		require.ErrorIs(t, put("tenant00", "second"), outmill.ErrLeaseLost)
		require.NoError(t, put("tenant01", "second"), "to another member it comes from elsewhere")
	})
}
