package mongo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
)

// manySagas inserts n sagas: half are finished, and one in ten of all can be deleted. The
// server's own deletions do not run during the test.
func (s stand) manySagas(t *testing.T, kind string, n int) {
	t.Helper()
	require.NoError(t, s.db.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: kind}, {Key: "index", Value: bson.D{
		{Key: "name", Value: "outmill_delete_at"}, {Key: "expireAfterSeconds", Value: int32(1 << 30)},
	}}}).Err())
	now := time.Now().UTC()
	const atOnce = 5000
	for from := 0; from < n; from += atOnce {
		documents := make([]any, atOnce)
		for i := range documents {
			id := outmill.NewWorkItemID()
			finished := i%2 == 0
			saga := bson.D{
				{Key: "_id", Value: bson.Binary{Subtype: 4, Data: id[:]}}, {Key: "_version", Value: int64(1)},
				{Key: "_correlation", Value: fmt.Sprint("o", from+i)}, {Key: "_finished", Value: finished},
				{Key: "_created_at", Value: now.Add(-72 * time.Hour)}, {Key: "_updated_at", Value: now.Add(-time.Duration(i%3) * 24 * time.Hour)},
			}
			switch {
			case i%10 == 0:
				saga = append(saga, bson.E{Key: "_delete_at", Value: now.Add(-time.Minute)})
			case finished:
				saga = append(saga, bson.E{Key: "_delete_at", Value: now.Add(24 * time.Hour)})
			}
			documents[i] = saga
		}
		_, err := s.db.Collection(kind).InsertMany(t.Context(), documents)
		require.NoError(t, err)
	}
}

func TestSagas_Plans(t *testing.T) {
	t.Parallel()
	t.Run("every query on sagas is answered through an index, and reads no more than it needs", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		kind := newPrefix() + "order"
		t.Cleanup(func() { _ = s.db.Collection(kind).Drop(t.Context()) })
		store, kept := s.recorded(t, mongo.Config{})
		require.NoError(t, store.PrepareSagas(t.Context(), kind))
		s.manySagas(t, kind, testenv.Steps(20_000, 50_000))
		ctx, options := t.Context(), roles.SagaOptions{KeepUnknown: true}
		type state struct{ Paid bool }
		saga := &roles.Saga{Type: kind, Correlation: "new"}
		doing := func(name string, do func() error) { kept.while(name, func() { require.NoError(t, do(), name) }) }
		doing("insert saga", func() error { return store.InsertSaga(ctx, saga, &state{}, options) })
		doing("find saga", func() (err error) { saga, err = store.FindSaga(ctx, kind, "new", &state{}, options); return err })
		doing("list sagas", func() error {
			page, err := store.ListSagas(ctx, roles.SagaQuery{Type: kind}, options)
			require.Len(t, page.Sagas, 100)
			return err
		})
		saga.Finished = true
		doing("update saga", func() error { return store.UpdateSaga(ctx, saga, &state{}, options) })
		doing("retain saga", func() error { return store.RetainSaga(ctx, saga, time.Hour, options) })
		doing("delete saga", func() error { return store.DeleteSaga(ctx, saga, options) })
		const limit = 100
		deleted := func(name string, want int, call func() (int, error)) {
			doing(name, func() error {
				got, err := call()
				require.Equal(t, want, got, name)
				return err
			})
		}
		deleted("delete old sagas", limit, func() (int, error) { return store.DeleteOldSagas(ctx, limit) })
		deleted("delete finished sagas", limit, func() (int, error) { return store.DeleteFinishedSagas(ctx, kind, 36*time.Hour, limit) })
		deleted("delete finished sagas where there are none", 0, func() (int, error) {
			return store.DeleteFinishedSagas(ctx, kind, 96*time.Hour, limit)
		})
		calls := map[string]bool{}
		for _, c := range kept.commands {
			for _, query := range c.asked(t) {
				if value(query, c.name) != kind && value(query, "find") != kind {
					continue
				}
				calls[c.doing] = true
				p := explained(t, s.db, query)
				said := fmt.Sprintf("%s: %s\n%v by %v, %d keys, %d documents", c.doing, clipped(query), p.stages, p.indexes, p.keys, p.docs)
				assert.NotContains(t, p.stages, "COLLSCAN", said)
				assert.NotContains(t, p.stages, "SORT", said)
				assert.LessOrEqual(t, max(p.keys, p.docs), int64(10*limit), said)
			}
		}
		require.Len(t, calls, 9)
	})
}
