package txtest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// sagaKind is the type of the suite's sagas. Harnesses may know it.
const sagaKind = "ordersaga"

func sagaSentences() []sentence {
	return []sentence{
		{"a saga is found by its type and correlation value, with its state", sagaFound},
		{"an update stores the state and moves the version", sagaUpdated},
		{"an update and a deletion of a version that is gone are conflicts", sagaConflicts},
		{"of two starts of one saga one exists", sagaStartedTwice},
		{"of two starts in open transactions one is refused", sagaStartedConcurrently},
		{"of two updates in open transactions one is refused", sagaUpdatedConcurrently},
		{"a start that another unique index refuses is an error, and no start of another", sagaStartRefusedByOther},
		{"an update that another unique index refuses is an error, and no conflict", sagaUpdateRefusedByOther},
		{"a rolled back transaction leaves no saga, no change and no message", sagaRolledBack},
		{"a start that is refused leaves the transaction usable", sagaExistsInTx},
		{"a finished saga is kept until its retention has passed", sagaFinished},
		{"stored fields that the type has no longer are ignored, and dropped by an update", sagaUnknownDropped},
		{"stored fields that the type has no longer are preserved on request, nested ones too", sagaUnknownKept},
		{"the field of the version can be named", sagaVersionField},
		{"sagas are listed without their states, the newest first, in pages", sagasListed},
		{"a list sees what its transaction did, and not what another one has not committed", sagasListedInTx},
		{"sagas beyond the limits are refused with typed errors", sagaLimits},
	}
}

type sagaItem struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

type sagaState struct {
	Customer string              `json:"customer"`
	Paid     bool                `json:"paid,omitempty"`
	Note     string              `json:"note,omitempty"`
	Item     sagaItem            `json:"item"`
	Tags     map[string]int      `json:"tags,omitempty"`
	Lines    []sagaItem          `json:"lines"`
	Deep     map[string]sagaItem `json:"deep,omitempty"`
}

// laterState is sagaState in a later release of a program.
type laterState struct {
	Customer string `json:"customer"`
	Paid     bool   `json:"paid,omitempty"`
	Item     struct {
		Name string `json:"name"`
	} `json:"item"`
	Tags map[string]int `json:"tags,omitempty"`
}

func anOrder() *sagaState {
	return &sagaState{
		Customer: "Ada \u0000 \u00e9\U0001F600", Paid: true, Note: "gift", Item: sagaItem{"book", 3}, Tags: map[string]int{"red": 1, "blue": 2},
		Lines: []sagaItem{{"a", 1}, {"b", 2}}, Deep: map[string]sagaItem{"x": {"y", 9}},
	}
}

// sagas returns the store as a roles.Sagas.
func (e *env) sagas() roles.Sagas {
	e.T.Helper()
	found, ok := outmill.As[roles.Sagas](e.Store)
	require.True(e.T, ok, "the store is no roles.Sagas")
	require.NoError(e.T, found.PrepareSagas(e.Ctx, sagaKind))
	return found
}

func (e *env) startSaga(correlation string) *roles.Saga {
	e.T.Helper()
	saga := &roles.Saga{Type: sagaKind, Correlation: correlation}
	require.NoError(e.T, e.sagas().InsertSaga(e.Ctx, saga, anOrder(), roles.SagaOptions{}))
	return saga
}

func (e *env) findSaga(correlation string) (*roles.Saga, *sagaState) {
	e.T.Helper()
	state := &sagaState{}
	saga, err := e.sagas().FindSaga(e.Ctx, sagaKind, correlation, state, roles.SagaOptions{})
	require.NoError(e.T, err)
	return saga, state
}

func (e *env) requireNoSaga(correlation string) {
	e.T.Helper()
	_, err := e.sagas().FindSaga(e.Ctx, sagaKind, correlation, &sagaState{}, roles.SagaOptions{})
	require.ErrorIs(e.T, err, roles.ErrSagaNotFound)
}

func sagaFound(e *env) {
	e.requireNoSaga("o1")
	started := e.startSaga("o1")
	require.False(e.T, started.ID.IsZero())
	require.Equal(e.T, int64(1), started.Version)
	e.RequireAbout(e.Now(), started.CreatedAt, "created")
	e.startSaga("O1")

	found, state := e.on(e.Reopen()).findSaga("o1")
	require.Equal(e.T, anOrder(), state)
	require.Equal(e.T, started.ID, found.ID)
	require.Equal(e.T, int64(1), found.Version)
	require.False(e.T, found.Finished)
	require.WithinDuration(e.T, started.CreatedAt, found.CreatedAt, time.Millisecond)
	_, err := e.sagas().FindSaga(e.Ctx, "othersaga", "o1", &sagaState{}, roles.SagaOptions{})
	require.ErrorIs(e.T, err, roles.ErrSagaNotFound)

	own := &roles.Saga{ID: outmill.NewWorkItemID(), Type: sagaKind, Correlation: "o2"}
	id := own.ID
	require.NoError(e.T, e.sagas().InsertSaga(e.Ctx, own, anOrder(), roles.SagaOptions{}))
	found, _ = e.findSaga("o2")
	require.Equal(e.T, id, found.ID)
}

func sagaUpdated(e *env) {
	saga := e.startSaga("o1")
	e.Elapse(time.Hour)
	changed := anOrder()
	changed.Note, changed.Tags = "", map[string]int{"green": 3}
	require.NoError(e.T, e.sagas().UpdateSaga(e.Ctx, saga, changed, roles.SagaOptions{}))
	require.Equal(e.T, int64(2), saga.Version)
	found, state := e.findSaga("o1")
	require.Equal(e.T, changed, state)
	require.Equal(e.T, int64(2), found.Version)
	require.WithinDuration(e.T, found.CreatedAt.Add(time.Hour), found.UpdatedAt, suite.Tolerance)
	require.WithinDuration(e.T, saga.UpdatedAt, found.UpdatedAt, time.Millisecond)

	require.NoError(e.T, e.sagas().DeleteSaga(e.Ctx, found, roles.SagaOptions{}))
	e.requireNoSaga("o1")
	e.startSaga("o1")
}

func sagaConflicts(e *env) {
	saga := e.startSaga("o1")
	stale := *saga
	require.NoError(e.T, e.sagas().UpdateSaga(e.Ctx, saga, anOrder(), roles.SagaOptions{}))
	for _, options := range []roles.SagaOptions{{}, {KeepUnknown: true}} {
		require.ErrorIs(e.T, e.sagas().UpdateSaga(e.Ctx, &stale, &sagaState{Customer: "never"}, options), roles.ErrSagaConflict)
	}
	require.Equal(e.T, int64(1), stale.Version)
	require.ErrorIs(e.T, e.sagas().DeleteSaga(e.Ctx, &stale, roles.SagaOptions{}), roles.ErrSagaConflict)
	_, state := e.findSaga("o1")
	require.Equal(e.T, anOrder(), state)

	require.NoError(e.T, e.sagas().DeleteSaga(e.Ctx, saga, roles.SagaOptions{}))
	e.startSaga("o1")
	require.ErrorIs(e.T, e.sagas().UpdateSaga(e.Ctx, &stale, anOrder(), roles.SagaOptions{}), roles.ErrSagaConflict,
		"another saga with the same version")
}

func sagaStartedTwice(e *env) {
	first := e.startSaga("o1")
	again := &roles.Saga{Type: sagaKind, Correlation: "o1"}
	require.ErrorIs(e.T, e.sagas().InsertSaga(e.Ctx, again, &sagaState{}, roles.SagaOptions{}), roles.ErrSagaExists)
	require.True(e.T, again.ID.IsZero())
	found, state := e.findSaga("o1")
	require.Equal(e.T, first.ID, found.ID)
	require.Equal(e.T, anOrder(), state)
}

// twoAtOnce runs fn in two transactions and returns the errors. The transactions are open at the
// same time if the engine allows it.
func twoAtOnce(e *env, fn func(ctx context.Context) error) (failed []error) {
	e.T.Helper()
	stores := []*env{e, e.on(e.Reopen())}
	errs := make(chan error, len(stores))
	begun, done := newMeeting(len(stores)), newMeeting(len(stores))
	for _, each := range stores {
		go func() {
			errs <- each.transactor().Transact(each.Ctx, func(ctx context.Context) error {
				begun.join()
				err := fn(context.WithValue(ctx, sagasKey{}, each))
				done.join()
				return err
			})
		}()
	}
	for range stores {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// meeting makes goroutines wait for each other, but not for a goroutine that the engine blocks.
type meeting struct {
	left atomic.Int32
	all  chan struct{}
}

func newMeeting(n int) *meeting {
	m := &meeting{all: make(chan struct{})}
	m.left.Store(int32(n))
	return m
}

func (m *meeting) join() {
	if m.left.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
	case <-time.After(200 * time.Millisecond):
	}
}

type sagasKey struct{}

// sagasOf returns the store whose transaction twoAtOnce put into the context.
func sagasOf(ctx context.Context) roles.Sagas {
	found, _ := outmill.As[roles.Sagas](ctx.Value(sagasKey{}).(*env).Store)
	return found
}

func sagaStartedConcurrently(e *env) {
	e.sagas()
	for _, name := range []string{"o1", "o2", "o3"} {
		failed := twoAtOnce(e, func(ctx context.Context) error {
			return sagasOf(ctx).InsertSaga(ctx, &roles.Saga{Type: sagaKind, Correlation: name}, anOrder(), roles.SagaOptions{})
		})
		require.Len(e.T, failed, 1)
		require.ErrorIs(e.T, failed[0], roles.ErrSagaExists)
		e.findSaga(name)
	}
}

func sagaUpdatedConcurrently(e *env) {
	saga := e.startSaga("o1")
	failed := twoAtOnce(e, func(ctx context.Context) error {
		mine := *saga
		return sagasOf(ctx).UpdateSaga(ctx, &mine, anOrder(), roles.SagaOptions{})
	})
	require.Len(e.T, failed, 1)
	require.ErrorIs(e.T, failed[0], roles.ErrSagaConflict)
	found, _ := e.findSaga("o1")
	require.Equal(e.T, int64(2), found.Version)
}

func sagaRolledBack(e *env) {
	kept := e.startSaga("o1")
	refused := errors.New("refused")
	sagas := e.sagas()
	require.ErrorIs(e.T, e.transactor().Transact(e.Ctx, func(ctx context.Context) error {
		require.NoError(e.T, sagas.InsertSaga(ctx, &roles.Saga{Type: sagaKind, Correlation: "o2"}, anOrder(), roles.SagaOptions{}))
		_, err := sagas.FindSaga(ctx, sagaKind, "o2", &sagaState{}, roles.SagaOptions{})
		require.NoError(e.T, err, "the transaction sees what it did")
		mine := *kept
		require.NoError(e.T, sagas.UpdateSaga(ctx, &mine, &sagaState{Customer: "never"}, roles.SagaOptions{}))
		require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "never")))
		return refused
	}), refused)
	e.requireNoSaga("o2")
	found, state := e.findSaga("o1")
	require.Equal(e.T, int64(1), found.Version)
	require.Equal(e.T, anOrder(), state)
	require.Empty(e.T, e.List(outmill.ListQuery{}))

	ctx, commit, _ := e.Begin()
	require.NoError(e.T, sagas.DeleteSaga(ctx, kept, roles.SagaOptions{}))
	require.NoError(e.T, sagas.InsertSaga(ctx, &roles.Saga{Type: sagaKind, Correlation: "o3"}, anOrder(), roles.SagaOptions{}))
	commit()
	e.requireNoSaga("o1")
	e.findSaga("o3")
}

func sagaExistsInTx(e *env) {
	e.startSaga("o1")
	sagas := e.sagas()
	ctx, commit, _ := e.Begin()
	require.ErrorIs(e.T, sagas.InsertSaga(ctx, &roles.Saga{Type: sagaKind, Correlation: "o1"}, anOrder(), roles.SagaOptions{}),
		roles.ErrSagaExists)
	require.NoError(e.T, sagas.InsertSaga(ctx, &roles.Saga{Type: sagaKind, Correlation: "o2"}, anOrder(), roles.SagaOptions{}))
	commit()
	e.findSaga("o2")
}

func sagaFinished(e *env) {
	for _, name := range []string{"o1", "o2", "o3"} {
		saga := e.startSaga(name)
		saga.Finished = name != "o3"
		require.NoError(e.T, e.sagas().UpdateSaga(e.Ctx, saga, anOrder(), roles.SagaOptions{}))
	}
	deleted := func(limit int) int {
		n, err := e.sagas().DeleteFinishedSagas(e.Ctx, sagaKind, time.Hour, limit)
		require.NoError(e.T, err)
		return n
	}
	require.Equal(e.T, 0, deleted(10))
	found, state := e.findSaga("o1")
	require.True(e.T, found.Finished)
	require.Equal(e.T, anOrder(), state)
	require.ErrorIs(e.T, e.sagas().InsertSaga(e.Ctx, &roles.Saga{Type: sagaKind, Correlation: "o1"}, anOrder(), roles.SagaOptions{}),
		roles.ErrSagaExists)

	e.Elapse(2 * time.Hour)
	require.Equal(e.T, 1, deleted(1))
	require.Equal(e.T, 1, deleted(10))
	e.requireNoSaga("o1")
	e.requireNoSaga("o2")
	e.findSaga("o3")
	for _, bad := range []int{0, -1} {
		_, err := e.sagas().DeleteFinishedSagas(e.Ctx, sagaKind, time.Hour, bad)
		require.ErrorIs(e.T, err, outmill.ErrInvalidConfig)
	}
}

// changedType updates the saga by a program whose type of the state has changed.
func changedType(e *env, options roles.SagaOptions) *sagaState {
	e.T.Helper()
	e.startSaga("o1")
	var now laterState
	saga, err := e.sagas().FindSaga(e.Ctx, sagaKind, "o1", &now, options)
	require.NoError(e.T, err)
	require.Equal(e.T, "book", now.Item.Name)
	now.Paid, now.Tags = false, map[string]int{"red": 5}
	require.NoError(e.T, e.sagas().UpdateSaga(e.Ctx, saga, &now, options))
	_, state := e.findSaga("o1")
	return state
}

func sagaUnknownDropped(e *env) {
	state := changedType(e, roles.SagaOptions{})
	require.Equal(e.T, &sagaState{Customer: anOrder().Customer, Item: sagaItem{Name: "book"}, Tags: map[string]int{"red": 5}}, state)
}

func sagaUnknownKept(e *env) {
	state := changedType(e, roles.SagaOptions{KeepUnknown: true})
	want := anOrder()
	want.Paid, want.Tags = false, map[string]int{"red": 5}
	require.Equal(e.T, want, state)
}

func sagaVersionField(e *env) {
	options := roles.SagaOptions{VersionField: "revision"}
	sagas := e.sagas()
	saga := &roles.Saga{Type: sagaKind, Correlation: "o1"}
	require.NoError(e.T, sagas.InsertSaga(e.Ctx, saga, anOrder(), options))
	stale := *saga
	require.NoError(e.T, sagas.UpdateSaga(e.Ctx, saga, anOrder(), options))
	require.ErrorIs(e.T, sagas.UpdateSaga(e.Ctx, &stale, anOrder(), options), roles.ErrSagaConflict)
	state := &sagaState{}
	found, err := sagas.FindSaga(e.Ctx, sagaKind, "o1", state, options)
	require.NoError(e.T, err)
	require.Equal(e.T, int64(2), found.Version)
	require.Equal(e.T, anOrder(), state)
	require.NoError(e.T, sagas.DeleteSaga(e.Ctx, found, options))
	e.requireNoSaga("o1")
}

func sagaLimits(e *env) {
	sagas := e.sagas()
	refused := func(kind, correlation string, state any) {
		e.T.Helper()
		err := sagas.InsertSaga(e.Ctx, &roles.Saga{Type: kind, Correlation: correlation}, state, roles.SagaOptions{})
		require.ErrorIs(e.T, err, outmill.ErrInvalidRecord, "%q %q %T", kind, correlation, state)
	}
	for _, kind := range []string{"", "a b", "a$b", "caf\u00e9", ".a", "system.a", strings.Repeat("x", 121)} {
		refused(kind, "o1", anOrder())
	}
	for _, correlation := range []string{"", " o1", "o1 ", "a\x00b", "\xff", strings.Repeat("x", 256)} {
		refused(sagaKind, correlation, anOrder())
	}
	for _, state := range []any{nil, "text", 1, sagaState{}, (*sagaState)(nil), new(int), &struct{ C chan int }{make(chan int)}} {
		refused(sagaKind, "o1", state)
	}
	e.requireNoSaga("o1")
	if limited, ok := e.Harness.(storetest.Limited); ok {
		refused(sagaKind, "o1", &sagaState{Customer: strings.Repeat("x", limited.MaxPayload()+1)})
	}
	for _, query := range []roles.SagaQuery{{Type: sagaKind, Limit: -1}, {Type: "a b"}, {Type: strings.Repeat("x", 121)}} {
		_, err := sagas.ListSagas(e.Ctx, query, roles.SagaOptions{})
		require.True(e.T, errors.Is(err, outmill.ErrInvalidConfig) || errors.Is(err, outmill.ErrInvalidRecord), "%v: %v", query, err)
	}
	longest := strings.Repeat("\u00e9", 255)
	e.startSaga(longest)
	e.findSaga(longest)
}
