package tenants_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

func TestSet_Draining(t *testing.T) {
	t.Parallel()

	t.Run("a handler goes on in the store that has delivered its message, after a swap and a removal", func(t *testing.T) {
		t.Parallel()
		for name, after := range map[string]func(url string) []tenants.Tenant{
			"swap": func(url string) []tenants.Tenant {
				return []tenants.Tenant{{Key: "a", URL: url + "&_pragma=cache_size(-1000)"}}
			},
			"removal": func(string) []tenants.Tenant { return nil },
		} {
			url := "sqlite:" + filepath.Join(t.TempDir(), "a.db") + "?_pragma=synchronous(OFF)"
			list := []tenants.Tenant{{Key: "a", URL: url}}
			discovery := tenants.Func(func(context.Context) ([]tenants.Tenant, error) { return list, nil })
			set, err := tenants.New(t.Context(), tenants.Config{Discovery: discovery, Ensure: true, Linger: -1, CallTimeout: patient}, nil)
			require.NoError(t, err)
			awaitOpen(t, set, 1)
			outbox, err := set.Outbox("a")
			require.NoError(t, err)
			pub, err := publisher.New(set, publisher.Config{}, nil)
			require.NoError(t, err)
			box, err := inbox.New(set, inbox.Config{Consumer: "billing"})
			require.NoError(t, err)
			sub, err := subscriber.New(set, subscriber.Config{}, nil)
			require.NoError(t, err)
			messages, err := sub.Subscribe(t.Context(), topic)
			require.NoError(t, err)
			msg := message.NewMessage("m", nil)
			outmill.SetTenantID(msg, "a")
			require.NoError(t, pub.Publish(topic, msg))

			delivered := <-messages
			list = after(url)
			refresh(t, set)
			_, err = box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				_, inOld := outbox.(*sqlite.Store).Tx(msg.Context())
				require.True(t, inOld, name)
				return nil, pub.WithContext(msg.Context()).Publish("done", message.NewMessage("after m", nil))
			})(delivered)
			require.NoError(t, err, name)
			delivered.Ack()
			require.Eventually(t, func() bool {
				_, err := outbox.Stats(t.Context(), 1)
				return errors.Is(err, outmill.ErrClosed)
			}, soon, tick, "the old store is closed after the %s", name)
			require.NoError(t, sub.Close())
			require.NoError(t, set.Close())

			store, err := outmill.Open(t.Context(), url, nil)
			require.NoError(t, err)
			left, err := store.List(t.Context(), outmill.ListQuery{})
			require.NoError(t, err)
			require.Equal(t, []string{"after m"}, ids(left), name)
			require.NoError(t, store.Close())
		}
	})

	for name, after := range map[string]func(a, b string) []tenants.Tenant{
		"swap": func(a, b string) []tenants.Tenant {
			return []tenants.Tenant{{Key: "a", URL: a + "&_pragma=cache_size(-1000)"}, {Key: "b", URL: b + "&_pragma=cache_size(-1000)"}}
		},
		"removal": func(string, string) []tenants.Tenant { return nil },
	} {
		t.Run("a Transact that is open goes on in the old store until it ends, after a "+name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, -1)
			err := p.set.Transact(tenants.WithTenant(t.Context(), "a"), func(ctx context.Context) error {
				tx, _ := p.a.Tx(ctx)
				require.NotNil(t, tx)
				p.change(after)
				// Nothing is in flight in b, so its store says when the old stores are closed.
				p.requireClosed(p.b)
				found, err := p.set.TxOf(ctx)
				require.NoError(t, err)
				require.Same(t, tx, found)
				p.publish(ctx, "in the transaction")
				// A nested call takes part, and so does what the set keeps for handlers.
				return p.set.Transact(ctx, func(ctx context.Context) error {
					again, _ := p.a.Tx(ctx)
					require.Same(t, tx, again)
					_, err := p.set.PutNote(ctx, roles.Note{Consumer: "billing", Key: "m", Retention: time.Hour}, soon)
					return err
				})
			})
			require.NoError(t, err)
			p.requireClosed(p.a)
			p.requireLeft("in the transaction")
		})

		t.Run("a transaction of the user's goes on in the old store while Linger lasts, after a "+name, func(t *testing.T) {
			t.Parallel()
			for _, commit := range []bool{true, false} {
				p := newPair(t, time.Hour)
				tx, err := p.a.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				ctx := p.a.WithTx(t.Context(), tx)
				p.publish(ctx, "before")
				p.change(after)
				// A set whose Linger is over by now says when the old store would be closed without one.
				without := newPair(t, -1)
				without.change(after)
				without.requireClosed(without.a)
				p.publish(ctx, "after")
				if commit {
					require.NoError(t, tx.Commit())
					p.requireLeft("before", "after")
				} else {
					require.NoError(t, tx.Rollback())
					p.requireLeft()
				}
			}
		})

		t.Run("a transaction of the user's that outlasts Linger publishes no more, and still commits, after a "+name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, -1)
			tx, err := p.a.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx := p.a.WithTx(t.Context(), tx)
			p.publish(ctx, "in time")
			p.change(after)
			p.requireClosed(p.a)
			p.requireForeign(ctx)
			require.NoError(t, tx.Commit())
			p.requireLeft("in time")
		})
	}

	// The refusal must not depend on who else is a member, or on what still drains.
	for name, others := range map[string]func(p *pair) (after func(a, b string) []tenants.Tenant, end func()){
		"no other tenant is left": func(p *pair) (func(a, b string) []tenants.Tenant, func()) {
			return func(string, string) []tenants.Tenant { return nil }, func() { p.requireGone() }
		},
		"another tenant is left": func(*pair) (func(a, b string) []tenants.Tenant, func()) {
			return func(_, b string) []tenants.Tenant { return []tenants.Tenant{{Key: "b", URL: b}} }, func() {}
		},
		"another tenant still drains": func(p *pair) (func(a, b string) []tenants.Tenant, func()) {
			p.holdOpen("b")
			return func(string, string) []tenants.Tenant { return nil }, func() {}
		},
	} {
		t.Run("a transaction of a tenant that has gone is refused as that of another store where "+name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, -1)
			tx, err := p.a.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx := p.a.WithTx(t.Context(), tx)
			after, settled := others(p)
			p.change(after)
			p.requireClosed(p.a)
			settled()
			p.requireForeign(ctx)
			err = p.set.Append(ctx, &outmill.Record{Topic: topic, TenantID: "a"})
			require.ErrorIs(t, err, outmill.ErrForeignTx)
			var unknown *tenants.UnknownTenantError
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, "a", unknown.Key)
			err = p.set.Append(ctx, &outmill.Record{Topic: topic})
			require.ErrorIs(t, err, outmill.ErrForeignTx)
			require.ErrorIs(t, err, tenants.ErrNoTenant)
			require.NoError(t, tx.Rollback())
		})
	}

	t.Run("a set that is closed says so, in a transaction too", func(t *testing.T) {
		t.Parallel()
		p := newPair(t, time.Hour)
		tx, err := p.a.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, p.set.Close())
		require.ErrorIs(t, p.tryPublish(p.a.WithTx(t.Context(), tx), "late"), outmill.ErrClosed)
		require.NoError(t, tx.Rollback())
	})
}

// pair is a set of two tenants, whose stores it opens by URL, and the stores that it opened first.
type pair struct {
	*testing.T
	set  *tenants.Set
	pub  *publisher.Publisher
	urls [2]string
	list []tenants.Tenant
	a, b *sqlite.Store
}

func newPair(t *testing.T, linger time.Duration) *pair {
	p := &pair{T: t}
	for i, key := range []string{"a", "b"} {
		p.urls[i] = "sqlite:" + filepath.Join(t.TempDir(), key+".db") + "?_pragma=synchronous(OFF)"
		p.list = append(p.list, tenants.Tenant{Key: key, URL: p.urls[i]})
	}
	discovery := tenants.Func(func(context.Context) ([]tenants.Tenant, error) { return p.list, nil })
	var err error
	p.set, err = tenants.New(t.Context(), tenants.Config{
		Discovery: discovery, Ensure: true, Refresh: -1, Linger: linger, CallTimeout: patient,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.set.Close()) })
	awaitOpen(t, p.set, 2)
	p.pub, err = publisher.New(p.set, publisher.Config{}, nil)
	require.NoError(t, err)
	p.a, p.b = p.store("a"), p.store("b")
	return p
}

func (p *pair) store(key string) *sqlite.Store {
	p.Helper()
	store, err := p.set.Outbox(key)
	require.NoError(p, err)
	return store.(*sqlite.Store)
}

func (p *pair) change(after func(a, b string) []tenants.Tenant) {
	p.Helper()
	p.list = after(p.urls[0], p.urls[1])
	refresh(p.T, p.set)
}

// publish publishes a message of tenant a.
func (p *pair) publish(ctx context.Context, id string) {
	p.Helper()
	require.NoError(p, p.tryPublish(ctx, id))
}

func (p *pair) tryPublish(ctx context.Context, id string) error {
	msg := message.NewMessage(id, nil)
	outmill.SetTenantID(msg, "a")
	return p.pub.WithContext(ctx).Publish(topic, msg)
}

// requireForeign requires that a publish in the transaction of ctx is refused as that of another store, and that the
// error says what to do.
func (p *pair) requireForeign(ctx context.Context) {
	p.Helper()
	err := p.tryPublish(ctx, "too late")
	require.ErrorIs(p, err, outmill.ErrForeignTx)
	require.ErrorContains(p, err, "Set.Outbox")
	require.ErrorContains(p, err, "Linger")
}

// requireGone requires that no member is left, and none drains.
func (p *pair) requireGone() {
	p.Helper()
	require.Eventually(p, func() bool { return len(p.set.Status().Members) == 0 }, soon, tick)
}

// holdOpen has a transaction of the set in the tenant that ends with the test.
func (p *pair) holdOpen(key string) {
	p.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- p.set.Transact(tenants.WithTenant(context.WithoutCancel(p.Context()), key), func(context.Context) error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun
	p.Cleanup(func() {
		close(end)
		require.NoError(p, <-ended)
	})
}

func (p *pair) requireClosed(store *sqlite.Store) {
	p.Helper()
	require.Eventually(p, func() bool {
		_, err := store.Stats(p.Context(), 1)
		return errors.Is(err, outmill.ErrClosed)
	}, soon, tick)
}

// requireLeft requires that the database of tenant a has these messages.
func (p *pair) requireLeft(want ...string) {
	p.Helper()
	store, err := outmill.Open(p.Context(), p.urls[0], nil)
	require.NoError(p, err)
	left, err := store.List(p.Context(), outmill.ListQuery{})
	require.NoError(p, err)
	require.ElementsMatch(p, want, ids(left))
	require.NoError(p, store.Close())
}
