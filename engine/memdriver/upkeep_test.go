package memdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

func resting(t *testing.T, s store) bool {
	t.Helper()
	_, self := s.IdleWith()
	rests, err := s.AreIdle(t.Context(), []any{self})
	require.NoError(t, err)
	return rests[0]
}

// What the janitor has to delete ends the rest, and nothing does before.
func TestRest_PastRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make    func(ctx context.Context, s store) error
		janitor func(store, context.Context, int) (int, error)
	}{
		"a note": {func(ctx context.Context, s store) error {
			_, err := s.PutNote(ctx, roles.Note{Consumer: "c", Key: "m1", Retention: 24 * time.Hour}, 0)
			return err
		}, func(s store, ctx context.Context, limit int) (int, error) { return s.DeleteNotes(ctx, limit) }},
		"a saga": {func(ctx context.Context, s store) error {
			saga := &roles.Saga{Type: "order", Correlation: "o1", Finished: true}
			if err := s.InsertSaga(ctx, saga, &struct{}{}, roles.SagaOptions{}); err != nil {
				return err
			}
			return s.RetainSaga(ctx, saga, 24*time.Hour, roles.SagaOptions{})
		}, func(s store, ctx context.Context, limit int) (int, error) { return s.DeleteOldSagas(ctx, limit) }},
		"a join": {func(ctx context.Context, s store) error {
			join := &roles.Join{ExpectedSteps: 1}
			if err := s.StartJoin(ctx, join); err != nil {
				return err
			}
			return s.CancelJoin(ctx, join.ID, "")
		}, func(s store, ctx context.Context, limit int) (int, error) { return s.DeleteJoins(ctx, limit) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, storetest.Options{}, 0)
			require.NoError(t, c.make(t.Context(), h.store))
			require.True(t, resting(t, h.store))
			h.Elapse(nil, 25*time.Hour)
			require.False(t, resting(t, h.store))
			deleted, err := c.janitor(h.store, t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, 1, deleted)
			require.True(t, resting(t, h.store))
		})
	}
}

func TestExamine(t *testing.T) {
	t.Parallel()
	request := roles.ExamineRequest{ClockDifference: time.Second}
	missing := newHarness(t, storetest.Options{NoSchema: true}, 0).store
	_, err := missing.Examine(t.Context(), request)
	require.ErrorIs(t, err, outmill.ErrSchemaMissing)

	h := newHarness(t, storetest.Options{}, 0)
	found, err := h.store.Examine(t.Context(), request)
	require.NoError(t, err)
	require.Empty(t, found.Findings)
	require.Len(t, found.Unchecked, 1, "memory has nothing else to examine")
	h.Elapse(nil, time.Minute)
	found, err = h.store.Examine(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, "clock_differs", found.Findings[0].Code)

	require.NoError(t, h.store.Close())
	_, err = h.store.Examine(t.Context(), request)
	require.ErrorIs(t, err, outmill.ErrClosed)
}

// A store hears what another store on its database does, until it is closed.
func TestWake_OtherStore(t *testing.T) {
	t.Parallel()
	h := newHarness(t, storetest.Options{}, 0)
	other := h.Reopen()
	var topics []string
	other.(store).Wake(t.Context(), func(topic string) { topics = append(topics, topic) })
	appends := func() { require.NoError(t, h.store.Append(t.Context(), &outmill.Record{Topic: topic})) }
	appends()
	require.Equal(t, []string{topic}, topics)
	require.NoError(t, h.store.Close())
	h.store = open(t, h.store.db, h.options, 0)
	appends()
	require.Equal(t, []string{topic, topic}, topics, "the close of one store ends no hints of another")
}

func TestLog(t *testing.T) {
	t.Parallel()
	logger := journal.New()
	db := memdriver.New()
	s := store{engine.New(memdriver.Driver{Database: db}, engine.Config{Name: "memory", Logger: logger}), db}
	t.Cleanup(func() { _ = s.Close() })
	ctx := t.Context()
	require.NoError(t, s.Ensure(ctx))
	require.NoError(t, s.RegisterGroup(ctx, outmill.Registration{Group: group}))
	require.NoError(t, s.Append(ctx, &outmill.Record{Topic: topic}))
	_, err := s.Claim(ctx, outmill.ClaimRequest{Owner: a, Group: group, Limit: 1, Lease: time.Minute})
	require.NoError(t, err)
	db.Elapse(time.Hour)
	_, err = s.ReapExpired(ctx, 10)
	require.NoError(t, err)
	var lines []string
	for _, line := range logger.Lines() {
		require.Equal(t, "memory", line.Fields["store"])
		lines = append(lines, line.Msg)
	}
	require.Equal(t, []string{"Records appended", "Records claimed", "Expired leases were reaped"}, lines)
}
