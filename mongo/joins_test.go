package mongo_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
)

func (s stand) entries() *driver.Collection { return s.db.Collection("outmill_entries") }

// joined starts a join, and appends and claims steps of it.
func (s stand) joined(t *testing.T, join *roles.Join, n int) []*outmill.Record {
	t.Helper()
	require.NoError(t, s.StartJoin(t.Context(), join))
	topic := join.ID.String()
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: topic, MessageID: fmt.Sprint(i), Joins: []outmill.JoinID{join.ID}}
	}
	require.NoError(t, s.Append(t.Context(), records...))
	found := claimed(t, s, claimOf(outmill.NewOwnerToken(), n, outmill.OrderNone, topic))
	require.Len(t, found, n)
	return found
}

// stuckBeforeCommit is a store of another process whose next commit waits until the returned
// function is called. reached is closed when the commit waits.
func (s stand) stuckBeforeCommit(t *testing.T) (store *mongo.Store, reached <-chan struct{}, goOn func()) {
	t.Helper()
	stuck, free := make(chan struct{}), make(chan struct{})
	var once, freed sync.Once
	store = s.watched(t, mongo.Config{WithoutChangeStream: true}, func(e *event.CommandStartedEvent) {
		if e.CommandName == "commitTransaction" {
			once.Do(func() { close(stuck); <-free })
		}
	})
	goOn = func() { freed.Do(func() { close(free) }) }
	t.Cleanup(goOn)
	return store, stuck, goOn
}

func TestStore_Joins(t *testing.T) {
	t.Parallel()

	// The join ends with the counts by which it was decided. A step that is settled at that
	// moment comes before or after the end.
	t.Run("a step that is settled while the join ends does not change the final counts", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		for name, end := range map[string]func(store *mongo.Store, id outmill.JoinID) error{
			"finish": func(store *mongo.Store, id outmill.JoinID) error {
				_, err := store.FinishJoin(context.WithoutCancel(t.Context()), id, roles.FinishRequest{})
				return err
			},
			"cancel": func(store *mongo.Store, id outmill.JoinID) error {
				return store.CancelJoin(context.WithoutCancel(t.Context()), id, "enough")
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				join := &roles.Join{ExpectedSteps: 64, Policy: roles.JoinAny}
				found := s.joined(t, join, 4)
				require.NoError(t, s.Ack(t.Context(), "", leasesOf(found[:1])))
				other, reached, goOn := s.stuckBeforeCommit(t)
				var work sync.WaitGroup
				work.Go(func() {
					if err := end(other, join.ID); err != nil {
						t.Error(err)
					}
				})
				<-reached
				counting := make(chan struct{}, 10_000)
				acks := s.watched(t, mongo.Config{WithoutChangeStream: true}, func(e *event.CommandStartedEvent) {
					if in, _ := e.Command.Lookup("update").StringValueOK(); in == s.entries().Name() {
						counting <- struct{}{}
					}
				})
				for _, r := range found[1:] {
					work.Go(func() {
						if err := acks.Ack(context.WithoutCancel(t.Context()), "", []outmill.Lease{r.Lease()}); err != nil {
							t.Error(err)
						}
					})
				}
				<-counting
				goOn()
				work.Wait()
				ended, err := s.GetJoin(t.Context(), join.ID)
				require.NoError(t, err)
				require.NotEqual(t, roles.JoinPending, ended.Status)
				listed, err := s.ListJoins(t.Context(), roles.JoinQuery{})
				require.NoError(t, err)
				for _, j := range listed {
					if j.ID == join.ID {
						require.Equal(t, ended.CompletedSteps, j.CompletedSteps)
					}
				}
				steps, err := s.ListSteps(t.Context(), join.ID, outmill.WorkItemID{}, 100)
				require.NoError(t, err)
				completed := 0
				for _, step := range steps {
					if step.Status == roles.StepCompleted {
						completed++
					}
				}
				require.Equal(t, completed, ended.CompletedSteps)
				require.Equal(t, 1, ended.CompletedSteps, "the end was written first")
			})
		}
	})

	t.Run("joins that are deleted leave no entries", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{RetainJoins: 1})
		join := &roles.Join{ExpectedSteps: 64, Policy: roles.JoinAny, GroupingKey: "grouped"}
		found := s.joined(t, join, 2)
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
		_, err := s.FinishJoin(t.Context(), join.ID, roles.FinishRequest{})
		require.NoError(t, err)
		kinds := func() (kinds []string) {
			of := bson.D{{Key: "_id.kind", Value: bson.D{{Key: "$regex", Value: "join|step"}}}}
			require.NoError(t, s.entries().Distinct(t.Context(), "_id.kind", of).Decode(&kinds))
			return kinds
		}
		require.Len(t, kinds(), 5)
		require.True(t, eventually(t.Context(), patience, func() bool {
			n, err := s.DeleteJoins(t.Context(), 10)
			require.NoError(t, err)
			return n == 1
		}))
		require.Empty(t, kinds())
	})
}
