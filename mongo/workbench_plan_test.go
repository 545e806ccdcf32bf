package mongo_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	driverrows "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
)

// backlog inserts n records of the topic orders that are parked with one key, n dead ones that have
// parked nothing, n pending ones, and n old entries of the audit.
func (s stand) backlog(t *testing.T, n int) {
	t.Helper()
	var entries []any
	entry := func(kind, key string) {
		entries = append(entries, bson.D{
			{Key: "_id", Value: bson.D{{Key: "kind", Value: kind}, {Key: "key", Value: key}}},
			{Key: "at", Value: int64(1)}, {Key: "made", Value: int64(1)}, {Key: "value", Value: `{"Details":{}}`},
		})
	}
	for some := range slices.Chunk(numbered("backlog", n), 1000) {
		for _, key := range []string{"parked", "dead", "pending"} {
			require.NoError(t, s.Append(t.Context(), keyed(key, some...)...))
		}
		for range some {
			// The smallest numbers are the oldest.
			entry("audit", fmt.Sprintf("%019d", math.MaxInt64-len(entries)))
			entry("audit command", outmill.NewWorkItemID().String())
		}
	}
	_, err := s.entries().InsertMany(t.Context(), entries)
	require.NoError(t, err)
	dead := bson.D{{Key: "stage", Value: int32(driverrows.Dead)}}
	for key, set := range map[string]bson.D{"dead": dead, "parked": append(dead, bson.E{Key: "parked", Value: true})} {
		_, err := s.records().UpdateMany(t.Context(), bson.D{{Key: "key", Value: key}}, bson.D{{Key: "$set", Value: set}})
		require.NoError(t, err)
	}
}

// reads returns how many keys and documents the server reads while do runs, the larger of the two
// for each command.
func (s stand) reads(t *testing.T, do func()) (n int64) {
	t.Helper()
	profile := func(level int) {
		require.NoError(t, s.db.RunCommand(t.Context(), bson.D{{Key: "profile", Value: level}}).Err())
	}
	profile(2)
	do()
	profile(0)
	cursor, err := s.db.Collection("system.profile").Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var entries []struct {
		Keys int64  `bson:"keysExamined"`
		Docs int64  `bson:"docsExamined"`
		Plan string `bson:"planSummary"`
	}
	require.NoError(t, cursor.All(t.Context(), &entries))
	require.NotEmpty(t, entries)
	for _, e := range entries {
		require.NotContains(t, e.Plan, "COLLSCAN")
		n += max(e.Keys, e.Docs)
	}
	require.NoError(t, s.db.Collection("system.profile").Drop(t.Context()))
	return n
}

func TestStore_WorkbenchPlan(t *testing.T) {
	t.Parallel()

	t.Run("calls on dead records read no more when more records are dead, parked or pending, and more is audited", func(t *testing.T) {
		t.Parallel()
		var few map[string]int64
		for _, n := range []int{1500, testenv.Steps(3000, 6_000)} {
			s := newStand(t, mongo.Config{})
			var ids []outmill.WorkItemID
			for i := range 3 {
				key := fmt.Sprint("own", i)
				require.NoError(t, s.Append(t.Context(), keyed(key, numbered(key, 5)...)...))
				head := claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
				require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: head[0].Lease(), Park: true}}))
				ids = append(ids, head[0].ID)
			}
			s.backlog(t, n)
			reads := s.readsOfOperators(t, ids)
			t.Log(n, reads)
			if few == nil {
				few = reads
				continue
			}
			for name, most := range few {
				require.LessOrEqual(t, reads[name], most+most/10, name)
			}
		}
	})
}

// readsOfOperators returns what each call of an operator reads. The ids are heads of parked keys.
func (s stand) readsOfOperators(t *testing.T, ids []outmill.WorkItemID) map[string]int64 {
	t.Helper()
	ctx := t.Context()
	reads := map[string]int64{}
	read := func(name string, call func() error) {
		reads[name] = s.reads(t, func() { require.NoError(t, call(), name) })
	}
	// A page looks at dead records by their ids, at so many at most, and counts what waits behind each that it returns.
	require.LessOrEqual(t, s.reads(t, func() {
		page, err := s.DeadLetters(ctx, outmill.ListQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, page.Letters, 10)
	}), int64(2*roles.MaxExamined))
	read("Edit", func() error { _, err := s.edited(t, ids[0], roles.Edit{Payload: []byte("new")}); return err })
	read("Skip", func() error {
		skipped, err := s.Skip(ctx, ids[0])
		require.Equal(t, roles.Skipped{Released: 4, Done: true}, skipped)
		return err
	})
	read("Requeue", func() error { _, err := s.Requeue(ctx, ids[1]); return err })
	read("Delete", func() error { _, err := s.Delete(ctx, ids[2]); return err })
	read("Audited", func() error { _, err := s.Audited(ctx, roles.AuditQuery{Limit: 10}); return err })
	read("DeleteOldAudit", func() error {
		n, err := s.DeleteOldAudit(ctx, 10)
		require.Equal(t, 10, n)
		return err
	})
	return reads
}
