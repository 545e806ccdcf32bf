package tenants_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

func (r *rig) stored(member string) []string {
	r.Helper()
	found, err := r.members[member].List(r.Context(), outmill.ListQuery{})
	require.NoError(r, err)
	return ids(found)
}

func TestSet_Outbox(t *testing.T) {
	t.Parallel()

	t.Run("returns the tenant's store, the same each time, by string and by UUID (OBX-072, OBX-074, OBX-121)", func(t *testing.T) {
		t.Parallel()
		id := uuid.New()
		r := newRig(t, []string{"a", id.String()}, nil)
		for range 2 {
			store, err := r.set.Outbox("a")
			require.NoError(t, err)
			require.Same(t, r.members["a"], store)
			store, err = r.set.OutboxOf(id)
			require.NoError(t, err)
			require.Same(t, r.members[id.String()], store)
		}
	})

	t.Run("finds a UUID in the forms of other programs, the canonical one first (OBX-074)", func(t *testing.T) {
		t.Parallel()
		keys := []string{
			"495AAD97-0F4E-4B0C-9D5A-3C3F7C1C0F5E", "{595aad97-0f4e-4b0c-9d5a-3c3f7c1c0f5e}", "{695AAD97-0F4E-4B0C-9D5A-3C3F7C1C0F5E}",
			"795aad970f4e4b0c9d5a3c3f7c1c0f5e", "895AAD970F4E4B0C9D5A3C3F7C1C0F5E", "995aad97-0f4e-4b0c-9d5a-3c3f7c1c0f5e",
		}
		r := newRig(t, append(keys, "995AAD97-0F4E-4B0C-9D5A-3C3F7C1C0F5E"), nil)
		for _, key := range keys {
			store, err := r.set.OutboxOf(uuid.MustParse(key))
			require.NoError(t, err, key)
			require.Same(t, r.members[key], store, key)
		}
		_, err := r.set.OutboxOf(uuid.MustParse("095AAD97-0F4E-4B0C-9D5A-3C3F7C1C0F5E"))
		var unknown *tenants.UnknownTenantError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, "095aad97-0f4e-4b0c-9d5a-3c3f7c1c0f5e", unknown.Key)
	})

	t.Run("names a key that is unknown (OBX-073)", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a"}, nil)
		_, err := r.set.Outbox("nobody")
		var unknown *tenants.UnknownTenantError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, "nobody", unknown.Key)
		require.ErrorContains(t, err, "nobody")
	})
}

func TestSet_Append(t *testing.T) {
	t.Parallel()

	t.Run("goes where the tenant id, the context, the delivery or the transaction says", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c", "d"}, nil)
		write := func(ctx context.Context, id, tenant string) {
			require.NoError(t, r.set.Append(ctx, &outmill.Record{MessageID: id, Topic: topic, TenantID: tenant}))
		}
		delivered := storekit.NewHandling(r.set.Name(), &outmill.Record{Store: "c"}, nil).Context(t.Context())
		write(t.Context(), "by tenant id", "a")
		write(tenants.WithTenant(t.Context(), "b"), "by context", "")
		write(tenants.WithTenant(delivered, "b"), "by context, not by delivery", "")
		write(delivered, "by delivery", "")
		write(delivered, "by tenant id, not by delivery", "a")
		tx := r.members["d"].db.Begin()
		write(r.members["d"].WithTx(t.Context(), tx), "by transaction", "")
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"by tenant id", "by tenant id, not by delivery"}, r.stored("a"))
		require.Equal(t, []string{"by context", "by context, not by delivery"}, r.stored("b"))
		require.Equal(t, []string{"by delivery"}, r.stored("c"))
		require.Equal(t, []string{"by transaction"}, r.stored("d"))
	})

	t.Run("refuses what names no tenant, an unknown one or several, and writes nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		record := func(tenant string) *outmill.Record { return &outmill.Record{Topic: topic, TenantID: tenant} }
		require.ErrorIs(t, r.set.Append(t.Context(), record("")), tenants.ErrNoTenant)
		require.ErrorIs(t, r.set.Append(t.Context(), record("a"), record("b")), tenants.ErrMixedTenants)
		require.ErrorIs(t, r.set.Append(t.Context(), record("a"), record("")), tenants.ErrNoTenant)
		require.ErrorIs(t, r.set.Append(tenants.WithTenant(t.Context(), "b"), record("a")), tenants.ErrMixedTenants)
		var unknown *tenants.UnknownTenantError
		require.ErrorAs(t, r.set.Append(t.Context(), record("x")), &unknown)
		require.Equal(t, "x", unknown.Key)
		require.ErrorIs(t, r.set.Append(t.Context(), &outmill.Record{TenantID: "x"}), outmill.ErrInvalidRecord)
		require.Empty(t, r.stored("a"))
		require.Empty(t, r.stored("b"))
	})

	t.Run("refuses the transaction of another member", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		tx := r.members["a"].db.Begin()
		ctx := r.members["a"].WithTx(t.Context(), tx)
		err := r.set.Append(ctx, &outmill.Record{Topic: topic, TenantID: "b"})
		require.ErrorIs(t, err, outmill.ErrForeignTx)
		require.ErrorContains(t, err, `"b"`)
		found, err := r.set.TxOf(ctx)
		require.NoError(t, err)
		require.Equal(t, tx, found)
		require.NoError(t, tx.Rollback())

		other := memstore.NewDatabase().Begin()
		ctx = memstore.New(memstore.NewDatabase(), memstore.Options{}).WithTx(t.Context(), other)
		_, err = r.set.TxOf(ctx)
		require.ErrorIs(t, err, outmill.ErrForeignTx)
		found, err = r.set.TxOf(t.Context())
		require.NoError(t, err)
		require.Nil(t, found)
	})

	t.Run("serves several tenant ids of one database by KeyOf, and the default tenant", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"small", "acme"}, func(c *tenants.Config) {
			c.DefaultTenant = "small"
			c.KeyOf = func(id string) string {
				if id == "acme" {
					return id
				}
				return "small"
			}
		})
		for _, id := range []string{"acme", "one", "two", ""} {
			require.NoError(t, r.set.Append(t.Context(), &outmill.Record{MessageID: "of " + id, Topic: topic, TenantID: id}))
		}
		require.Equal(t, []string{"of acme"}, r.stored("acme"))
		require.Equal(t, []string{"of one", "of two", "of "}, r.stored("small"))
	})

	t.Run("lets one publisher serve all tenants", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		pub, err := publisher.New(r.set, publisher.Config{}, nil)
		require.NoError(t, err)
		for _, tenant := range []string{"a", "b", "a"} {
			msg := message.NewMessage("of "+tenant, nil)
			outmill.SetTenantID(msg, tenant)
			require.NoError(t, pub.Publish(topic, msg))
		}
		require.ErrorIs(t, pub.Publish(topic, message.NewMessage("of nobody", nil)), tenants.ErrNoTenant)
		require.Equal(t, []string{"of a", "of a"}, r.stored("a"))
		require.Equal(t, []string{"of b"}, r.stored("b"))
		require.NoError(t, pub.Close())
	})

	t.Run("waits until a member has the registrations that it owes", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.members["a"].fail("RegisterGroup", errAway)
		require.NoError(t, r.set.RegisterGroup(t.Context(), outmill.Registration{Group: "late"}), "the others are registered")
		require.Len(t, r.reported(), 1)

		record := &outmill.Record{Topic: topic, TenantID: "a"}
		err := r.set.Append(t.Context(), record)
		require.ErrorIs(t, err, tenants.ErrNotReady)
		require.ErrorIs(t, err, errAway)
		_, err = r.set.Outbox("a")
		require.ErrorIs(t, err, tenants.ErrNotReady)
		tx := r.members["a"].db.Begin()
		require.ErrorIs(t, r.set.Append(r.members["a"].WithTx(t.Context(), tx), record), tenants.ErrNotReady)
		require.NoError(t, tx.Rollback())
		require.Empty(t, r.stored("a"))

		r.members["a"].fail("RegisterGroup", nil)
		require.NoError(t, r.set.Append(t.Context(), record))
		require.Len(t, r.stored("a"), 2, "one for each group")
	})

	t.Run("makes the registrations that a member owes before a transaction, so that the first message in it reaches all", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		ctx := tenants.WithTenant(t.Context(), "a")
		publish := func(ctx context.Context) error { return r.set.Append(ctx, &outmill.Record{Topic: topic}) }
		r.members["a"].fail("RegisterGroup", errAway)
		require.NoError(t, r.set.RegisterGroup(t.Context(), outmill.Registration{Group: "late"}), "the others are registered")
		require.ErrorIs(t, r.set.Transact(ctx, publish), tenants.ErrNotReady)
		require.NoError(t, r.set.Transact(ctx, func(context.Context) error { return nil }), "it appends nothing")
		require.Empty(t, r.stored("a"))

		r.members["a"].fail("RegisterGroup", nil)
		require.NoError(t, r.set.Transact(ctx, publish))
		require.Len(t, r.stored("a"), 2, "one for each group")
	})

	t.Run("a member gets the registrations that it owes although nobody claims from it or writes to it", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.members["a"].fail("RegisterGroup", errAway)
		require.NoError(t, r.set.RegisterGroup(t.Context(), outmill.Registration{Group: "late"}), "the others are registered")
		tried := r.members["a"].called("RegisterGroup")
		require.Eventually(t, func() bool { return r.members["a"].called("RegisterGroup") > tried }, soon, tick)
		_, err := r.set.Outbox("a")
		require.ErrorIs(t, err, tenants.ErrNotReady)
		r.members["a"].fail("RegisterGroup", nil)
		require.Eventually(t, func() bool { _, err := r.set.Outbox("a"); return err == nil }, soon, tick)
		tx := r.members["a"].db.Begin()
		require.NoError(t, r.set.Append(r.members["a"].WithTx(t.Context(), tx), &outmill.Record{Topic: topic, TenantID: "a"}))
		require.NoError(t, tx.Commit())
		require.Len(t, r.stored("a"), 2, "one for each group")
		require.Len(t, r.reported(), 1, "it is told of once")
	})
}

func TestSet_Roles(t *testing.T) {
	t.Parallel()

	t.Run("that the member's store lacks are errors that name both", func(t *testing.T) {
		t.Parallel()
		r := newPlain(t, "a")
		ctx := tenants.WithTenant(t.Context(), "a")
		for role, call := range map[string]func(ctx context.Context) error{
			"roles.Transactor": func(ctx context.Context) error {
				return r.set.Transact(ctx, func(context.Context) error { return nil })
			},
			"roles.Inbox": func(ctx context.Context) error { _, err := r.set.HasNote(ctx, "c", "k"); return err },
			"roles.Joins": func(ctx context.Context) error { return r.set.StartJoin(ctx, &roles.Join{ExpectedSteps: 1}) },
			"roles.Sagas": func(ctx context.Context) error {
				_, err := r.set.FindSaga(ctx, "s", "1", &struct{}{}, roles.SagaOptions{})
				return err
			},
		} {
			var lacks *tenants.RoleError
			require.ErrorAs(t, call(ctx), &lacks)
			require.Equal(t, tenants.RoleError{Member: "a", Role: role}, *lacks)
			require.ErrorIs(t, call(t.Context()), tenants.ErrNoTenant, role)
		}
		// The upkeep has nothing to do in such a member.
		for _, tidy := range []func(context.Context, int) (int, error){r.set.DeleteJoins, r.set.DeleteNotes} {
			n, err := tidy(t.Context(), 10)
			require.NoError(t, err)
			require.Zero(t, n)
		}
	})

	t.Run("wake-ups of all members come together", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		woken := make(chan string, 100)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.set.Wake(ctx, func(topic string) { woken <- topic })
		for _, m := range r.members {
			require.NoError(t, m.Append(t.Context(), &outmill.Record{Topic: topic}))
			require.Equal(t, topic, <-woken)
		}
	})

	t.Run("without wake-ups no member listens, and appends of this process still wake", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a"}, func(c *tenants.Config) { c.WithoutWake = true })
		woken := make(chan string, 100)
		r.set.Wake(t.Context(), func(topic string) { woken <- topic })
		require.NoError(t, r.members["a"].Append(t.Context(), &outmill.Record{Topic: topic}))
		require.Empty(t, woken)
		r.append("a", 1)
		require.Equal(t, topic, <-woken)
	})
}
