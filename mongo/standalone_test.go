package mongo_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func newStandalone(t *testing.T, config mongo.Config) stand {
	t.Helper()
	config.WithoutTransactions = true
	s, _ := ownStand(t, config, mongoengine.Standalone)
	return s
}

func TestStore_Standalone(t *testing.T) {
	t.Parallel()

	t.Run("tenants take turns on a standalone server", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, fair)
		s.ofTenants(t, s.Store, 20, "big")
		s.ofTenants(t, s.Store, 2, "a", "b")
		of := map[string]int{}
		for _, r := range claimed(t, s, claimOf(outmill.NewOwnerToken(), 6, outmill.OrderNone)) {
			of[r.TenantID]++
		}
		require.Equal(t, map[string]int{"big": 2, "a": 2, "b": 2}, of)
	})

	t.Run("a standalone server is enough for all calls that need no transaction", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, mongo.Config{Retain: time.Hour})
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "others"}))
		require.NoError(t, s.Append(t.Context(), made("orders", "r", 7)...))
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "key0", MessageID: "behind"}))
		owner := outmill.NewOwnerToken()
		found := claimed(t, s, claimOf(owner, 7, outmill.OrderNone))
		require.Len(t, found, 7)
		leases := leasesOf(found)
		held, err := s.Extend(t.Context(), time.Hour, leases)
		require.NoError(t, err)
		require.Len(t, held, 7)
		require.NoError(t, s.Ack(t.Context(), "", leases[1:2]))
		require.NoError(t, s.Abandon(t.Context(), []outmill.Settlement{{Lease: leases[2], Delay: time.Hour}}))
		require.NoError(t, s.Snooze(t.Context(), []outmill.Settlement{{Lease: leases[3], Delay: time.Hour}}))
		require.NoError(t, s.Release(t.Context(), leases[4:5]))
		require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: leases[5], Err: "no"}, {Lease: leases[0], Err: "parks", Park: true}}))
		status := map[outmill.Status]int{}
		reader := readers
		list, err := s.List(t.Context(), outmill.ListQuery{Group: reader})
		require.NoError(t, err)
		for _, r := range list {
			status[r.Status]++
		}
		require.Equal(t, map[outmill.Status]int{outmill.StatusProcessed: 1, outmill.StatusPending: 3, outmill.StatusDead: 3,
			outmill.StatusLeased: 1}, status)

		n, err := s.Requeue(t.Context(), leases[0].ID)
		require.NoError(t, err)
		require.Equal(t, 2, n, "what was parked comes back with it")
		n, err = s.Delete(t.Context(), leases[5].ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		stats, err := s.Stats(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, stats, 2)
		dropped, err := s.DropGroup(t.Context(), "others")
		require.NoError(t, err)
		require.Equal(t, outmill.Dropped{Deleted: 8}, dropped)
		for _, tidy := range []func(context.Context, int) (int, error){s.ReapExpired, s.ExpireDue, s.DeleteProcessed, s.DeleteDedupKeys} {
			n, err := tidy(t.Context(), 10)
			require.NoError(t, err)
			require.Zero(t, n)
		}
	})

	t.Run("a standalone server pauses and resumes", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), ofTenant("key", "m1")))
		require.NoError(t, s.Append(t.Context(), ofTenant("", "m2")))
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "paused", MessageID: "m3"}))
		require.NoError(t, s.Append(t.Context(), one("m4")))
		scopes := []roles.PauseScope{acme, {Topic: "orders", Key: "paused"}, {Group: readers, Topic: "others"}}
		for _, scope := range scopes {
			paused(t, s.Store, scope)
		}
		req := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)
		require.Equal(t, []string{"m4"}, namesOf(claimed(t, s, req)))
		require.Empty(t, claimed(t, s, req))
		require.Equal(t, 3, s.inStage(t, storekit.StageAside))
		for _, scope := range scopes {
			resumed(t, s.Store, scope)
		}
		require.ElementsMatch(t, []string{"m1", "m2", "m3"}, namesOf(claimed(t, s, req)))
	})

	t.Run("a standalone server lists, edits and skips dead records, and audits", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, mongo.Config{})
		const n = 20
		records := s.parkedKey(t, "key", n)
		page, err := s.DeadLetters(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.Len(t, page.Letters, 1)
		require.Equal(t, n-1, page.Letters[0].Waiting)

		seen := storekit.FingerprintOf(page.Letters[0].Record)
		errs := make(chan error, 4)
		var editing sync.WaitGroup
		for i := range cap(errs) {
			editing.Go(func() {
				_, err := s.Edit(t.Context(), records[0].ID, roles.Edit{Seen: seen, Payload: []byte{byte('a' + i)}})
				errs <- err
			})
		}
		editing.Wait()
		close(errs)
		made := 0
		for err := range errs {
			if err == nil {
				made++
				continue
			}
			require.ErrorIs(t, err, roles.ErrRecordChanged)
		}
		require.Equal(t, 1, made, "of edits of one state, one is made")

		mongo.SetAtOnce(s.Store, 1)
		skipped, err := s.Skip(t.Context(), records[0].ID)
		require.NoError(t, err)
		require.Equal(t, roles.Skipped{Released: n - 1, Done: true}, skipped)
		require.Equal(t, numbered("key", n)[1:], listed(t, s))
		deleted, err := s.Delete(t.Context(), records[1].ID, records[2].ID)
		require.NoError(t, err)
		require.Equal(t, 2, deleted)
		found := map[roles.AuditAction]int{}
		for _, e := range s.audited(t) {
			found[e.Action] += e.Count
		}
		require.Equal(t, map[roles.AuditAction]int{roles.AuditEdit: 1, roles.AuditSkip: n, roles.AuditDelete: 2}, found)
	})

	t.Run("a skip that a standalone server did not finish goes on", func(t *testing.T) {
		t.Parallel()
		s, server := ownStand(t, mongo.Config{WithoutTransactions: true}, mongoengine.Standalone)
		const n = 10
		records := s.parkedKey(t, "key", n)
		mongo.SetAtOnce(s.Store, 1)
		ctx, cut := context.WithCancel(t.Context())
		// Each step ends with an update of the entry of the audit.
		var audited int
		var last int64
		dying := newStore(t, clientOf(t, options.Client().ApplyURI(server.URL).SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, e *event.CommandStartedEvent) {
				if name, ok := e.Command.Lookup("update").StringValueOK(); ok && strings.HasSuffix(name, "audit") {
					audited++
					last = e.RequestID
				}
			},
			Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if audited == 2 && e.RequestID == last {
					cut()
				}
			},
		})), mongo.Config{Database: s.db.Name(), WithoutTransactions: true})
		mongo.SetAtOnce(dying, 1)
		skipped, err := dying.Skip(ctx, records[0].ID)
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, skipped.Done)
		head, err := s.Get(t.Context(), records[0].ID)
		require.NoError(t, err)
		require.Equal(t, storekit.SkippedError, head.LastError)
		skipped, err = s.Skip(t.Context(), records[0].ID)
		require.NoError(t, err)
		require.Equal(t, roles.Skipped{Released: n - 4, Done: true}, skipped)
		require.Equal(t, numbered("key", n)[1:], listed(t, s))
		require.Zero(t, s.inStage(t, storekit.StageDead))
	})

	t.Run("a registration with a TTL ends on a standalone server", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, mongo.Config{})
		brief := outmill.Registration{Group: "brief", Worker: "w", TTL: time.Millisecond, Topics: outmill.Topics{Include: []string{"replies"}}}
		for range 2 {
			require.NoError(t, s.RegisterGroup(t.Context(), brief))
		}
		require.NoError(t, s.Append(t.Context(), made("replies", "r", 3)...))
		require.NoError(t, s.Append(t.Context(), one("stays")))
		for registrations := 0; registrations == 0; { // until its millisecond is over
			var records int
			var err error
			registrations, records, err = s.ExpireRegistrations(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, 3*registrations, records)
		}
		groups, err := s.Groups(t.Context())
		require.NoError(t, err)
		require.Len(t, groups, 1)
		group := "brief"
		left, err := s.List(t.Context(), outmill.ListQuery{Group: group})
		require.NoError(t, err)
		require.Empty(t, left)
	})

	t.Run("records of a standalone server wait for the first group", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, mongo.Config{})
		_, err := s.DropGroup(t.Context(), readers)
		require.NoError(t, err)
		require.NoError(t, s.Append(t.Context(), made("orders", "r", 1100)...), "more than one step adopts")
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.Len(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 2000, outmill.OrderNone)), 1100)
	})

	t.Run("calls that need a transaction are refused without transactions", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, mongo.Config{})
		for name, record := range map[string]*outmill.Record{
			"dedup key": once("never", "key"),
			"joins":     {Topic: "orders", MessageID: "never", Joins: []outmill.JoinID{outmill.JoinID(outmill.NewWorkItemID())}},
		} {
			var refused *outmill.InvalidRecordError
			require.ErrorAs(t, s.Append(t.Context(), one("never"), record), &refused)
			require.Equal(t, 1, refused.Index)
			require.Equal(t, name, refused.Field)
			require.Contains(t, refused.Reason, "WithoutTransactions")
		}
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			_, err := s.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, order))
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "WithoutTransactions")
		}
		session := s.session(t)
		require.NoError(t, session.StartTransaction())
		for name, ctx := range map[string]context.Context{
			"WithTx": s.WithTx(t.Context(), session), "the driver's": driver.NewSessionContext(t.Context(), session),
		} {
			err := s.Append(ctx, one("never"))
			require.ErrorIs(t, err, outmill.ErrInvalidTx, name)
			require.ErrorContains(t, err, "WithoutTransactions")
		}
		require.Error(t, s.InTx(t.Context(), func(ctx context.Context) error { return s.Append(ctx, one("never")) }))
		require.Empty(t, listed(t, s))
	})

	t.Run("an append that fails halfway without transactions deletes its documents", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, mongo.Config{})
		first := one("first")
		require.NoError(t, s.Append(t.Context(), first))
		batch := made("orders", "never", 5)
		batch[3].ID = first.ID
		err := s.Append(t.Context(), batch...)
		require.True(t, driver.IsDuplicateKeyError(err), "%v", err)
		require.Equal(t, []string{"first"}, listed(t, s))
	})

	t.Run("a store with transactions recognises a standalone server", func(t *testing.T) {
		t.Parallel()
		s := newStandalone(t, mongo.Config{})
		store := newStore(t, s.Client(), mongo.Config{Database: s.db.Name()})
		// 20 is IllegalOperation: only members of a replica set have transactions.
		var told driver.ServerError
		require.ErrorAs(t, store.Append(t.Context(), one("one"), one("two")), &told)
		require.True(t, told.HasErrorCode(20))
		n, err := s.records().CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		require.Zero(t, n)
	})
}
