package mongo_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// parkedKey parks n records of a key, and returns them.
func (s stand) parkedKey(t *testing.T, key string, n int) []*outmill.Record {
	t.Helper()
	records := keyed(key, numbered(key, n)...)
	require.NoError(t, s.Append(t.Context(), records...))
	for _, r := range claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)) {
		require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: r.Lease(), Err: "poison", Park: true}}))
	}
	require.Equal(t, n, s.dead(t))
	return records
}

// dead is the number of dead records.
func (s stand) dead(t *testing.T) int {
	t.Helper()
	found, err := s.List(t.Context(), outmill.ListQuery{Status: outmill.StatusDead, Limit: 10_000})
	require.NoError(t, err)
	return len(found)
}

func (s stand) audited(t *testing.T) []roles.AuditEntry {
	t.Helper()
	page, err := s.Audited(t.Context(), roles.AuditQuery{Limit: 1000})
	require.NoError(t, err)
	require.True(t, page.Done)
	return page.Entries
}

func (s stand) raw(t *testing.T, id outmill.WorkItemID) (document bson.Raw) {
	t.Helper()
	document, err := s.records().FindOne(t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Subtype: 4, Data: id[:]}}}).Raw()
	require.NoError(t, err)
	return document
}

// edited edits what the store has.
func (s stand) edited(t *testing.T, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	t.Helper()
	before, err := s.Get(t.Context(), id)
	require.NoError(t, err)
	edit.Seen = storekit.FingerprintOf(before)
	return s.Edit(t.Context(), id, edit)
}

// operations are the calls that the audit notes, each of which changes the head of a parked key.
var operations = map[roles.AuditAction]func(ctx context.Context, s stand, head *outmill.Record) error{
	roles.AuditRequeue: func(ctx context.Context, s stand, head *outmill.Record) error {
		_, err := s.Requeue(ctx, head.ID)
		return err
	},
	roles.AuditDelete: func(ctx context.Context, s stand, head *outmill.Record) error {
		_, err := s.Delete(ctx, head.ID)
		return err
	},
	roles.AuditEdit: func(ctx context.Context, s stand, head *outmill.Record) error {
		_, err := s.Edit(ctx, head.ID, roles.Edit{Seen: storekit.FingerprintOf(head), Payload: []byte("new")})
		return err
	},
	roles.AuditSkip: func(ctx context.Context, s stand, head *outmill.Record) error {
		_, err := s.Skip(ctx, head.ID)
		return err
	},
}

func TestStore_Workbench(t *testing.T) {
	t.Parallel()

	// The claim has read the record when it expires. An operator edits and requeues it, which resets all that a lease checks except
	// the edits.
	t.Run("a record that is edited between the choice and the lease of a claim is handed out as edited", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			t.Run(order.String(), func(t *testing.T) {
				t.Parallel()
				s := newStand(t, mongo.Config{})
				var between func()
				client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{
					Started: func(_ context.Context, e *event.CommandStartedEvent) {
						if do := between; do != nil && e.CommandName == "update" && e.Command.Lookup("update").StringValue() == s.records().Name() {
							between = nil
							do()
						}
					},
				}))
				store := newStore(t, client, mongo.Config{Database: s.db.Name(), WithoutChangeStream: true})
				require.NoError(t, s.Append(t.Context(), append(keyed("other", "first", "second"), keyed("key", "m")...)...))
				require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 2, order)), 2)
				ofM := bson.D{{Key: "content.message", Value: "m"}}
				between = func() {
					s.moved(t, ofM, "expires")
					n, err := s.ExpireDue(t.Context(), 10)
					require.NoError(t, err)
					require.Equal(t, 1, n)
					dead, err := s.List(t.Context(), outmill.ListQuery{Status: outmill.StatusDead})
					require.NoError(t, err)
					_, err = s.edited(t, dead[0].ID, roles.Edit{Payload: []byte("edited")})
					require.NoError(t, err)
					_, err = s.Requeue(t.Context(), dead[0].ID)
					require.NoError(t, err)
				}
				var got []*outmill.Record
				require.True(t, eventually(t.Context(), patience, func() bool {
					got = append(got, claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, order))...)
					return len(got) > 0
				}))
				require.Nil(t, between, "the record was edited during a claim")
				require.Equal(t, []string{"m"}, namesOf(got))
				require.Equal(t, "edited", string(got[0].Payload))
			})
		}
	})

	t.Run("a skip that was cut off between two steps leaves the head dead, and another process goes on with it", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		const n = 20
		records := s.parkedKey(t, "key", n)
		ctx, cut := context.WithCancel(t.Context())
		var commits int
		client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{
			Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
				if e.CommandName != "commitTransaction" {
					return
				}
				if commits++; commits == 2 {
					cut()
				}
			},
		}))
		dying := newStore(t, client, mongo.AtOnce(mongo.Config{Database: s.db.Name()}, 1))
		skipped, err := dying.Skip(ctx, records[0].ID)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, roles.Skipped{Released: 3}, skipped, "a step of one, and a step of two")

		head, err := s.Get(t.Context(), records[0].ID)
		require.NoError(t, err)
		require.Equal(t, outmill.StatusDead, head.Status)
		require.Equal(t, storekit.SkippedError, head.LastError)
		letters, err := s.DeadLetters(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		waiting := map[string]int{}
		for _, l := range letters.Letters {
			waiting[l.Record.MessageID] = l.Waiting
		}
		require.Equal(t, map[string]int{records[0].MessageID: n - 4, records[4].MessageID: n - 5}, waiting,
			"the skipped record, and the first of those that still park the key")

		park := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)
		park.KeyPolicy = outmill.KeyPark
		released := claimed(t, s, park)
		require.Equal(t, numbered("key", 4)[1:], namesOf(released))
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(released)))

		skipped, err = s.Skip(t.Context(), records[0].ID)
		require.NoError(t, err)
		require.Equal(t, roles.Skipped{Released: n - 4, Done: true}, skipped)
		_, err = s.Get(t.Context(), records[0].ID)
		require.ErrorIs(t, err, outmill.ErrNotFound)
		park.Limit = n
		require.Equal(t, numbered("key", n)[4:], namesOf(claimed(t, s, park)))
		counts := 0
		for _, e := range s.audited(t) {
			require.Equal(t, roles.AuditSkip, e.Action)
			counts += e.Count
		}
		require.Equal(t, n, counts)
	})

	t.Run("all records that a skip releases become due at one time", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		records := s.parkedKey(t, "key", 10)
		skipped, err := newStore(t, s.Client(), mongo.AtOnce(mongo.Config{Database: s.db.Name()}, 1)).Skip(t.Context(), records[0].ID)
		require.NoError(t, err)
		require.Equal(t, roles.Skipped{Released: 9, Done: true}, skipped)
		entries := s.audited(t)
		require.Len(t, entries, 1, "steps of 1, 2, 4, and the rest add to one entry")
		require.Equal(t, 10, entries[0].Count)
		due := map[time.Time]bool{}
		for _, r := range records[1:] {
			found, err := s.Get(t.Context(), r.ID)
			require.NoError(t, err)
			due[found.NextAttemptAt] = true
		}
		require.Len(t, due, 1)
	})

	t.Run("an edit writes a payload as Config.EmbedJSON says", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{EmbedJSON: true})
		id := s.parkedKey(t, "key", 1)[0].ID
		for payload, kind := range map[string]bson.Type{
			`{"a":"<b>","n":1.5}`: bson.TypeEmbeddedDocument, `{"a":"\u003cb\u003e"}`: bson.TypeEmbeddedDocument,
			`{ "a": 1 }`: bson.TypeBinary, "": bson.TypeBinary, "text": bson.TypeBinary,
		} {
			after, err := s.edited(t, id, roles.Edit{Payload: []byte(payload)})
			require.NoError(t, err)
			require.Equal(t, payload, string(after.Payload))
			require.Equal(t, kind, s.raw(t, id).Lookup("content", "payload").Type, payload)
			found, err := s.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, payload, string(found.Payload))
		}
	})

	t.Run("an edit takes the largest payload, and refuses a larger one and a document over the limit", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		id := s.parkedKey(t, "key", 1)[0].ID
		large := make([]byte, mongo.DefaultMaxPayload)
		_, err := s.edited(t, id, roles.Edit{Payload: large})
		require.NoError(t, err)
		for _, edit := range []roles.Edit{
			{Payload: append(large, 0)},
			{Metadata: map[string]string{"rest": strings.Repeat("x", (limit-mongo.DefaultMaxPayload)/2)}},
		} {
			_, err := s.edited(t, id, edit)
			var refused *outmill.InvalidRecordError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "payload", refused.Field)
			require.Equal(t, -1, refused.Index)
		}
		require.Len(t, s.audited(t), 1)
		_, err = s.Requeue(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)), 1)
	})
}

func TestStore_Audit(t *testing.T) {
	t.Parallel()

	t.Run("a change whose entry cannot be written is not made", func(t *testing.T) {
		t.Parallel()
		const app = "failing"
		server := mongotest.Own(t)
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		for action, call := range operations {
			db := victimOf(t, server.URL, app).Database("test" + string(action))
			s := newStandIn(t, db, mongo.Config{})
			records := s.parkedKey(t, "key", 3)
			before := s.raws(t)
			head, err := s.Get(t.Context(), records[0].ID)
			require.NoError(t, err)
			failing(t, admin, app, 1, bson.D{
				{Key: "failCommands", Value: bson.A{"update"}}, {Key: "namespace", Value: db.Name() + ".outmill_entries"},
				{Key: "errorCode", Value: 8000},
			})
			require.Error(t, call(t.Context(), s, head), action)
			require.Equal(t, before, s.raws(t), action)
			require.Empty(t, s.audited(t), action)
			require.NoError(t, call(t.Context(), s, head), action)
			require.Len(t, s.audited(t), 1, action)
			require.NotEqual(t, before, s.raws(t), action)
		}
	})

	t.Run("an open transaction with a deleted record does not keep another operator waiting", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		records := made("orders", "r", 2)
		require.NoError(t, s.Append(t.Context(), records...))
		slow, reached, goOn := s.stuckBeforeCommit(t)
		ended := make(chan error, 1)
		go func() {
			_, err := slow.Delete(context.WithoutCancel(t.Context()), records[0].ID)
			ended <- err
		}()
		<-reached
		n, err := s.Delete(t.Context(), records[1].ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Len(t, s.audited(t), 1)
		goOn()
		require.NoError(t, <-ended)
		require.Len(t, s.audited(t), 2)
	})

	t.Run("Config.RetainAudit says how long an entry is kept that the store writes", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{RetainAudit: 1})
		require.NoError(t, s.Append(t.Context(), one("kept"), one("deleted")))
		keeping := newStore(t, s.Client(), mongo.Config{Database: s.db.Name()})
		for name, store := range map[string]*mongo.Store{"kept": keeping, "deleted": s.Store} {
			_, err := store.DeleteWhere(t.Context(), outmill.ListQuery{MessageID: name})
			require.NoError(t, err)
		}
		var n int
		require.True(t, eventually(t.Context(), patience, func() (done bool) {
			var err error
			n, err = keeping.DeleteOldAudit(t.Context(), 10)
			return err != nil || n > 0
		}))
		require.Equal(t, 1, n)
		left := s.audited(t)
		require.Len(t, left, 1)
		require.Equal(t, "kept", left[0].Filter["message_id"])
	})
}

// raws returns all documents of the records.
func (s stand) raws(t *testing.T) (all []bson.Raw) {
	t.Helper()
	cursor, err := s.records().Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	require.NoError(t, cursor.All(t.Context(), &all))
	return all
}
