package driver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/roles"
)

// usedByLogPublisher appends to each segment.
func usedByLogPublisher(t *testing.T, store, super opened) error {
	steps := []func() error{func() error { return usedByPublisher(t, store, super) }}
	for segment := range 3 {
		for _, rows := range []int{3, 100} {
			steps = append(steps, func() error {
				execute(t, super.db, "UPDATE outmill.meta SET segment = $1", segment)
				return store.Transact(t.Context(), func(ctx context.Context) error { return store.Append(ctx, made("orders", "x", rows)...) })
			})
		}
	}
	return firstOf(steps...)
}

func usedByNamer(t *testing.T, store, super opened) error {
	own := made("orders", "x", 2)
	own[0].ID, own[1].ID = outmill.NewWorkItemID(), outmill.NewWorkItemID()
	return firstOf(
		func() error { return store.Append(t.Context(), own...) },
		func() error { return usedByPublisher(t, store, super) },
	)
}

// handledOnce notes that a message is handled.
func handledOnce(ctx context.Context, store opened, lease outmill.Lease) error {
	return store.Transact(ctx, func(ctx context.Context) error {
		_, err := store.PutNote(ctx, roles.Note{Consumer: "w", Key: lease.ID.String(), Retention: time.Hour, Lease: lease}, time.Second)
		return err
	})
}

// logUser is a group with a topic of its own, which a role with the rights of a worker uses.
type logUser struct {
	t            *testing.T
	ctx          context.Context
	store, super opened
	name         string
}

func newLogUser(t *testing.T, store, super opened) *logUser {
	return &logUser{t: t, ctx: t.Context(), store: store, super: super, name: "a" + outmill.NewWorkItemID().String()}
}

func (u *logUser) register(ttl time.Duration) error {
	return u.store.RegisterGroup(u.ctx, outmill.Registration{Group: u.name, Topics: outmill.Topics{Include: []string{u.name}}, TTL: ttl})
}

// appended are rows of the log of three keys.
func (u *logUser) appended() (ids []outmill.WorkItemID, err error) {
	records := append(append(made(u.name, "x", 20), made(u.name, "y", 20)...), made(u.name, "z", 20)...)
	err = u.super.Append(u.ctx, records...)
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids, err
}

func (u *logUser) claim(owner outmill.OwnerToken, order outmill.Order, lease time.Duration) ([]*outmill.Record, error) {
	got, err := u.store.Claim(u.ctx, outmill.ClaimRequest{
		Owner: owner, Worker: "w", Group: u.name, Topics: outmill.Topics{Include: []string{u.name}}, Limit: 4, Lease: lease, Order: order,
	})
	if err == nil {
		require.NotEmpty(u.t, got, "%v", order)
	}
	return got, err
}

// settles is a claim with one settlement of a part of it.
func (u *logUser) settles(order outmill.Order, settle func(leases []outmill.Lease) error) func() error {
	return func() error {
		got, err := u.claim(outmill.NewOwnerToken(), order, time.Minute)
		if err != nil {
			return err
		}
		return settle(leasesOf(got))
	}
}

// usedByLogWorker makes the calls of a worker on rows of the log: claims of its own and by pages, and each way in which a row leaves them.
func usedByLogWorker(t *testing.T, store, super opened) error {
	u := newLogUser(t, store, super)
	ctx := u.ctx
	var ids []outmill.WorkItemID
	acks := func(leases []outmill.Lease) error { return store.Ack(ctx, "w", leases) }
	// Of the same driver, and keeps nothing that is processed.
	lean := engine.New(store.driver, engine.Config{})
	deletes := func(leases []outmill.Lease) error { return lean.Ack(ctx, "w", leases) }
	return firstOf(
		func() error { return u.register(0) },
		func() (err error) { ids, err = u.appended(); return err },
		// Claims of its own, of which one is acked as a whole, and one by half.
		u.settles(outmill.OrderKey, deletes),
		u.settles(outmill.OrderKey, func(leases []outmill.Lease) error { return deletes(leases[:2]) }),
		// By pages: another owner has the keys.
		u.settles(outmill.OrderNone, func(leases []outmill.Lease) error { return store.Release(ctx, leases[:1]) }),
		u.settles(outmill.OrderKey, func(leases []outmill.Lease) error {
			_, err := store.Extend(ctx, time.Hour, leases)
			return err
		}),
		u.settles(outmill.OrderNone, func(leases []outmill.Lease) error {
			return store.Fail(ctx, []outmill.Settlement{{Lease: leases[0], Err: "fault", Park: true}})
		}),
		u.settles(outmill.OrderNone, func(leases []outmill.Lease) error { return handledOnce(ctx, store, leases[0]) }),
		// What nobody has claimed.
		func() error { _, err := store.Get(ctx, ids[55]); return err },
		func() error { _, err := store.Delete(ctx, ids[56], ids[57]); return err },
		func() error {
			return store.Pause(ctx, roles.PauseScope{Group: u.name, Topic: u.name, Key: "z"}, "me", "")
		},
		u.settles(outmill.OrderNone, acks),
		func() error { return usedByWorker(t, store, super) },
		func() error { _, err := store.Stats(ctx, 10); return err },
		func() error { _, err := store.DropGroup(ctx, u.name); return err },
		u.endings, u.late, u.looksForRest, u.looksForRest,
	)
}

// endings are a registration that ends with what it has not read.
func (u *logUser) endings() error {
	u.name += "e"
	return firstOf(
		func() error { return u.register(time.Microsecond) },
		func() error { _, err := u.appended(); return err },
		func() error { _, _, err := u.store.ExpireRegistrations(u.ctx, 100); return err },
		func() error { _, _, err := u.store.ExpireRegistrations(u.ctx, 100); return err },
	)
}

// looksForRest asks by searches the first time, and by a function once the process knows the log.
func (u *logUser) looksForRest() error {
	_, self := u.store.IdleWith()
	_, err := u.store.AreIdle(u.ctx, []any{self})
	return err
}

// late are more rows than a claim takes of a transaction that the claim before has met open.
func (u *logUser) late() error {
	u.name += "l"
	if err := u.register(0); err != nil {
		return err
	}
	tx, err := u.super.db.Begin(u.ctx)
	require.NoError(u.t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(u.ctx)) }()
	require.NoError(u.t, u.super.Append(u.super.WithTx(u.ctx, tx), made(u.name, "x", 6)...))
	require.NoError(u.t, u.super.Append(u.ctx, made(u.name, "y", 1)...))
	ignore := func([]outmill.Lease) error { return nil }
	return firstOf(
		u.settles(outmill.OrderNone, ignore),
		func() error { return tx.Commit(u.ctx) },
		u.settles(outmill.OrderNone, ignore),
		func() error { _, err := u.store.DropGroup(u.ctx, u.name); return err },
	)
}

// usedByKeeper makes a log of another server one of this server, and does the upkeep until it has emptied each segment.
func usedByKeeper(t *testing.T, store, super opened) error {
	u := newLogUser(t, store, super)
	execute(t, super.db, `TRUNCATE outmill.log_0, outmill.log_1, outmill.log_2, outmill.batches, outmill.ended, outmill.left_rows,
		outmill.records`)
	execute(t, super.db, "UPDATE outmill.upkeep SET until = 0, ended_at = 0")
	write := func() {
		for segment := range 3 {
			execute(t, super.db,
				fmt.Sprintf("INSERT INTO outmill.log_%d (created_at, id, topic) VALUES (0, gen_random_uuid(), $1)", segment), u.name)
		}
	}
	write()
	execute(t, super.db, "UPDATE outmill.server SET identity = 'another'")
	if err := u.register(0); err != nil {
		return err
	}
	lean := engine.New(store.driver, engine.Config{})
	if err := u.settles(outmill.OrderKey, func(leases []outmill.Lease) error { return lean.Ack(u.ctx, "w", leases) })(); err != nil {
		return err
	}
	for current := range 3 {
		write()
		execute(t, super.db, "UPDATE outmill.meta SET segment = $1, rotated_at = 0", current)
		for more := true; more; {
			var err error
			if more, err = store.driver.Tend(u.ctx); err != nil {
				return explained(store, err)
			}
		}
	}
	require.Zero(t, valueOf[int](t, super.db, "SELECT count(*) FROM outmill.log"), "what nobody reads is moved, and its segment truncated")
	_, err := store.DropGroup(u.ctx, u.name)
	return err
}

// A role without the rights of a keeper does not read a log of another server, and leaves the upkeep to others.
func TestRights_WithoutAKeeper(t *testing.T) {
	t.Parallel()
	database, super := ready(t)
	role, roleURL := newRole(t, super.db, database)
	rightsOf(super, "publisher").grant(t, super.db, role)
	rightsOf(super, "worker").grant(t, super.db, role)
	traced := func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} }
	open := func(url string) opened { return storeOn(t, connect(t, url, 2, traced)) }
	u := newLogUser(t, open(roleURL), super)
	require.NoError(t, u.register(0))
	_, err := u.appended()
	require.NoError(t, err)
	execute(t, super.db, "UPDATE outmill.server SET identity = 'another'")

	u.store = open(roleURL)
	_, err = u.claim(outmill.NewOwnerToken(), outmill.OrderKey, time.Minute)
	require.ErrorContains(t, err, "restored from another server")
	require.ErrorContains(t, err, "permission denied for table log_0")
	require.ErrorContains(t, err, "rights")
	_, err = u.store.Stats(u.ctx, 10)
	require.ErrorContains(t, err, "restored from another server")
	require.NoError(t, u.store.Append(u.ctx, made(u.name, "new", 1)...), "its number is one of this server")

	require.NoError(t, open(database).Append(u.ctx, made(u.name, "new", 1)...), "who has the rights makes the log one of this server")
	got, err := u.claim(outmill.NewOwnerToken(), outmill.OrderKey, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []byte("0"), got[0].Payload)
	for n := range 2 {
		ctx, seen := tapped(u.ctx)
		more, err := u.store.Maintain(ctx)
		require.NoError(t, err)
		require.False(t, more)
		sent := strings.Contains(fmt.Sprint(seen.list()), "/* outmill upkeep_turn */")
		require.Equal(t, n == 0, sent, "one refusal is enough")
	}
}
