package storetest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
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
		{"a rolled back transaction leaves no saga, no change and no message", sagaRolledBack},
		{"a start that is refused leaves the transaction usable", sagaExistsInTx},
		{"a finished saga is kept until its retention has passed", sagaFinished},
		{"stored fields that the type has no longer are ignored, and dropped by an update", sagaUnknownDropped},
		{"stored fields that the type has no longer are preserved on request, nested ones too", sagaUnknownKept},
		{"the field of the version can be named", sagaVersionField},
		{"sagas beyond the limits are refused with typed errors", sagaLimits},
	}
}

// RunSagas checks the sentences about storekit.Sagas, as Run checks those of
// outmill.Store.
func RunSagas(t *testing.T, h Harness) {
	runSections(t, h, sagaSections())
}

func sagaSections() []section {
	return []section{{name: "sagas", sentences: sagaSentences(), anyMode: true}}
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

// laterState is what became of sagaState in a later release.
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

// sagas is the store as a storekit.Sagas.
func (e *env) sagas() storekit.Sagas {
	e.t.Helper()
	found, ok := outmill.As[storekit.Sagas](e.store)
	require.True(e.t, ok, "the store is no storekit.Sagas")
	require.NoError(e.t, found.PrepareSagas(e.ctx, sagaKind))
	return found
}

func (e *env) startSaga(correlation string) *storekit.Saga {
	e.t.Helper()
	saga := &storekit.Saga{Type: sagaKind, Correlation: correlation}
	require.NoError(e.t, e.sagas().InsertSaga(e.ctx, saga, anOrder(), storekit.SagaOptions{}))
	return saga
}

func (e *env) findSaga(correlation string) (*storekit.Saga, *sagaState) {
	e.t.Helper()
	state := &sagaState{}
	saga, err := e.sagas().FindSaga(e.ctx, sagaKind, correlation, state, storekit.SagaOptions{})
	require.NoError(e.t, err)
	return saga, state
}

func (e *env) requireNoSaga(correlation string) {
	e.t.Helper()
	_, err := e.sagas().FindSaga(e.ctx, sagaKind, correlation, &sagaState{}, storekit.SagaOptions{})
	require.ErrorIs(e.t, err, storekit.ErrSagaNotFound)
}

func sagaFound(e *env) {
	e.requireNoSaga("o1")
	started := e.startSaga("o1")
	require.False(e.t, started.ID.IsZero())
	require.Equal(e.t, int64(1), started.Version)
	e.requireAbout(e.now(), started.CreatedAt, "created")
	e.startSaga("O1")

	found, state := e.on(e.reopen()).findSaga("o1")
	require.Equal(e.t, anOrder(), state)
	require.Equal(e.t, started.ID, found.ID)
	require.Equal(e.t, int64(1), found.Version)
	require.False(e.t, found.Finished)
	require.WithinDuration(e.t, started.CreatedAt, found.CreatedAt, time.Millisecond)
	_, err := e.sagas().FindSaga(e.ctx, "othersaga", "o1", &sagaState{}, storekit.SagaOptions{})
	require.ErrorIs(e.t, err, storekit.ErrSagaNotFound)

	own := &storekit.Saga{ID: outmill.NewWorkItemID(), Type: sagaKind, Correlation: "o2"}
	id := own.ID
	require.NoError(e.t, e.sagas().InsertSaga(e.ctx, own, anOrder(), storekit.SagaOptions{}))
	found, _ = e.findSaga("o2")
	require.Equal(e.t, id, found.ID)
}

func sagaUpdated(e *env) {
	saga := e.startSaga("o1")
	e.elapse(time.Hour)
	changed := anOrder()
	changed.Note, changed.Tags = "", map[string]int{"green": 3}
	require.NoError(e.t, e.sagas().UpdateSaga(e.ctx, saga, changed, storekit.SagaOptions{}))
	require.Equal(e.t, int64(2), saga.Version)
	found, state := e.findSaga("o1")
	require.Equal(e.t, changed, state)
	require.Equal(e.t, int64(2), found.Version)
	require.WithinDuration(e.t, found.CreatedAt.Add(time.Hour), found.UpdatedAt, tolerance)
	require.WithinDuration(e.t, saga.UpdatedAt, found.UpdatedAt, time.Millisecond)

	require.NoError(e.t, e.sagas().DeleteSaga(e.ctx, found, storekit.SagaOptions{}))
	e.requireNoSaga("o1")
	e.startSaga("o1")
}

func sagaConflicts(e *env) {
	saga := e.startSaga("o1")
	stale := *saga
	require.NoError(e.t, e.sagas().UpdateSaga(e.ctx, saga, anOrder(), storekit.SagaOptions{}))
	for _, options := range []storekit.SagaOptions{{}, {KeepUnknown: true}} {
		require.ErrorIs(e.t, e.sagas().UpdateSaga(e.ctx, &stale, &sagaState{Customer: "never"}, options), storekit.ErrSagaConflict)
	}
	require.Equal(e.t, int64(1), stale.Version)
	require.ErrorIs(e.t, e.sagas().DeleteSaga(e.ctx, &stale, storekit.SagaOptions{}), storekit.ErrSagaConflict)
	_, state := e.findSaga("o1")
	require.Equal(e.t, anOrder(), state)

	require.NoError(e.t, e.sagas().DeleteSaga(e.ctx, saga, storekit.SagaOptions{}))
	e.startSaga("o1")
	require.ErrorIs(e.t, e.sagas().UpdateSaga(e.ctx, &stale, anOrder(), storekit.SagaOptions{}), storekit.ErrSagaConflict, "another saga with the same version")
}

func sagaStartedTwice(e *env) {
	first := e.startSaga("o1")
	again := &storekit.Saga{Type: sagaKind, Correlation: "o1"}
	require.ErrorIs(e.t, e.sagas().InsertSaga(e.ctx, again, &sagaState{}, storekit.SagaOptions{}), storekit.ErrSagaExists)
	require.True(e.t, again.ID.IsZero())
	found, state := e.findSaga("o1")
	require.Equal(e.t, first.ID, found.ID)
	require.Equal(e.t, anOrder(), state)
}

// twoAtOnce runs fn in two transactions of their own at a time, and returns the errors.
func twoAtOnce(e *env, fn func(ctx context.Context) error) (failed []error) {
	e.t.Helper()
	stores := []*env{e, e.on(e.reopen())}
	errs := make(chan error, len(stores))
	var met atomic.Int32
	for _, each := range stores {
		go func() {
			errs <- each.transactor().Transact(each.ctx, func(ctx context.Context) error {
				met.Add(1)
				return fn(context.WithValue(ctx, sagasKey{}, each))
			})
		}()
	}
	for range stores {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	require.GreaterOrEqual(e.t, met.Load(), int32(2))
	return failed
}

type sagasKey struct{}

// sagasOf is the store whose transaction twoAtOnce has in the context.
func sagasOf(ctx context.Context) storekit.Sagas {
	found, _ := outmill.As[storekit.Sagas](ctx.Value(sagasKey{}).(*env).store)
	return found
}

func sagaStartedConcurrently(e *env) {
	e.sagas()
	for _, name := range []string{"o1", "o2", "o3"} {
		failed := twoAtOnce(e, func(ctx context.Context) error {
			return sagasOf(ctx).InsertSaga(ctx, &storekit.Saga{Type: sagaKind, Correlation: name}, anOrder(), storekit.SagaOptions{})
		})
		require.Len(e.t, failed, 1)
		require.ErrorIs(e.t, failed[0], storekit.ErrSagaExists)
		e.findSaga(name)
	}
}

func sagaUpdatedConcurrently(e *env) {
	saga := e.startSaga("o1")
	failed := twoAtOnce(e, func(ctx context.Context) error {
		mine := *saga
		return sagasOf(ctx).UpdateSaga(ctx, &mine, anOrder(), storekit.SagaOptions{})
	})
	require.Len(e.t, failed, 1)
	require.ErrorIs(e.t, failed[0], storekit.ErrSagaConflict)
	found, _ := e.findSaga("o1")
	require.Equal(e.t, int64(2), found.Version)
}

func sagaRolledBack(e *env) {
	kept := e.startSaga("o1")
	refused := errors.New("refused")
	sagas := e.sagas()
	require.ErrorIs(e.t, e.transactor().Transact(e.ctx, func(ctx context.Context) error {
		require.NoError(e.t, sagas.InsertSaga(ctx, &storekit.Saga{Type: sagaKind, Correlation: "o2"}, anOrder(), storekit.SagaOptions{}))
		_, err := sagas.FindSaga(ctx, sagaKind, "o2", &sagaState{}, storekit.SagaOptions{})
		require.NoError(e.t, err, "the transaction sees what it did")
		mine := *kept
		require.NoError(e.t, sagas.UpdateSaga(ctx, &mine, &sagaState{Customer: "never"}, storekit.SagaOptions{}))
		require.NoError(e.t, e.store.Append(ctx, rec(orders, "never")))
		return refused
	}), refused)
	e.requireNoSaga("o2")
	found, state := e.findSaga("o1")
	require.Equal(e.t, int64(1), found.Version)
	require.Equal(e.t, anOrder(), state)
	require.Empty(e.t, e.list(outmill.ListQuery{}))

	ctx, commit, _ := e.begin()
	require.NoError(e.t, sagas.DeleteSaga(ctx, kept, storekit.SagaOptions{}))
	require.NoError(e.t, sagas.InsertSaga(ctx, &storekit.Saga{Type: sagaKind, Correlation: "o3"}, anOrder(), storekit.SagaOptions{}))
	commit()
	e.requireNoSaga("o1")
	e.findSaga("o3")
}

func sagaExistsInTx(e *env) {
	e.startSaga("o1")
	sagas := e.sagas()
	ctx, commit, _ := e.begin()
	require.ErrorIs(e.t, sagas.InsertSaga(ctx, &storekit.Saga{Type: sagaKind, Correlation: "o1"}, anOrder(), storekit.SagaOptions{}), storekit.ErrSagaExists)
	require.NoError(e.t, sagas.InsertSaga(ctx, &storekit.Saga{Type: sagaKind, Correlation: "o2"}, anOrder(), storekit.SagaOptions{}))
	commit()
	e.findSaga("o2")
}

func sagaFinished(e *env) {
	for _, name := range []string{"o1", "o2", "o3"} {
		saga := e.startSaga(name)
		saga.Finished = name != "o3"
		require.NoError(e.t, e.sagas().UpdateSaga(e.ctx, saga, anOrder(), storekit.SagaOptions{}))
	}
	deleted := func(limit int) int {
		n, err := e.sagas().DeleteFinishedSagas(e.ctx, sagaKind, time.Hour, limit)
		require.NoError(e.t, err)
		return n
	}
	require.Equal(e.t, 0, deleted(10))
	found, state := e.findSaga("o1")
	require.True(e.t, found.Finished)
	require.Equal(e.t, anOrder(), state)
	require.ErrorIs(e.t, e.sagas().InsertSaga(e.ctx, &storekit.Saga{Type: sagaKind, Correlation: "o1"}, anOrder(), storekit.SagaOptions{}), storekit.ErrSagaExists)

	e.elapse(2 * time.Hour)
	require.Equal(e.t, 1, deleted(1))
	require.Equal(e.t, 1, deleted(10))
	e.requireNoSaga("o1")
	e.requireNoSaga("o2")
	e.findSaga("o3")
	for _, bad := range []int{0, -1} {
		_, err := e.sagas().DeleteFinishedSagas(e.ctx, sagaKind, time.Hour, bad)
		require.ErrorIs(e.t, err, outmill.ErrInvalidConfig)
	}
}

// changedType updates the saga by a program whose type of the state has changed.
func changedType(e *env, options storekit.SagaOptions) *sagaState {
	e.t.Helper()
	e.startSaga("o1")
	var now laterState
	saga, err := e.sagas().FindSaga(e.ctx, sagaKind, "o1", &now, options)
	require.NoError(e.t, err)
	require.Equal(e.t, "book", now.Item.Name)
	now.Paid, now.Tags = false, map[string]int{"red": 5}
	require.NoError(e.t, e.sagas().UpdateSaga(e.ctx, saga, &now, options))
	_, state := e.findSaga("o1")
	return state
}

func sagaUnknownDropped(e *env) {
	state := changedType(e, storekit.SagaOptions{})
	require.Equal(e.t, &sagaState{Customer: anOrder().Customer, Item: sagaItem{Name: "book"}, Tags: map[string]int{"red": 5}}, state)
}

func sagaUnknownKept(e *env) {
	state := changedType(e, storekit.SagaOptions{KeepUnknown: true})
	want := anOrder()
	want.Paid, want.Tags = false, map[string]int{"red": 5}
	require.Equal(e.t, want, state)
}

func sagaVersionField(e *env) {
	options := storekit.SagaOptions{VersionField: "revision"}
	sagas := e.sagas()
	saga := &storekit.Saga{Type: sagaKind, Correlation: "o1"}
	require.NoError(e.t, sagas.InsertSaga(e.ctx, saga, anOrder(), options))
	stale := *saga
	require.NoError(e.t, sagas.UpdateSaga(e.ctx, saga, anOrder(), options))
	require.ErrorIs(e.t, sagas.UpdateSaga(e.ctx, &stale, anOrder(), options), storekit.ErrSagaConflict)
	state := &sagaState{}
	found, err := sagas.FindSaga(e.ctx, sagaKind, "o1", state, options)
	require.NoError(e.t, err)
	require.Equal(e.t, int64(2), found.Version)
	require.Equal(e.t, anOrder(), state)
	require.NoError(e.t, sagas.DeleteSaga(e.ctx, found, options))
	e.requireNoSaga("o1")
}

func sagaLimits(e *env) {
	sagas := e.sagas()
	refused := func(kind, correlation string, state any) {
		e.t.Helper()
		err := sagas.InsertSaga(e.ctx, &storekit.Saga{Type: kind, Correlation: correlation}, state, storekit.SagaOptions{})
		require.ErrorIs(e.t, err, outmill.ErrInvalidRecord, "%q %q %T", kind, correlation, state)
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
	if e.h.MaxPayload > 0 {
		refused(sagaKind, "o1", &sagaState{Customer: strings.Repeat("x", e.h.MaxPayload+1)})
	}
	longest := strings.Repeat("\u00e9", 255)
	e.startSaga(longest)
	e.findSaga(longest)
}
