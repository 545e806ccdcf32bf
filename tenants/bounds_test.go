package tenants_test

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

// everyRole is a store with every role, for calls that do not come to an end.
type everyRole struct {
	*memstore.Store
	db     *memstore.Database
	probes atomic.Int64
}

// ReapExpired counts the questions of the set's probe, which asks for one record.
func (e *everyRole) ReapExpired(ctx context.Context, limit int) (int, error) {
	if limit == 1 {
		e.probes.Add(1)
	}
	return e.Store.ReapExpired(ctx, limit)
}

// stall is a call of a role that memstore does not have.
func (e *everyRole) stall(ctx context.Context) error {
	_, err := e.Get(ctx, outmill.NewWorkItemID())
	return err
}

func (e *everyRole) StartJoin(ctx context.Context, _ *roles.Join) error { return e.stall(ctx) }

func (e *everyRole) AttachStep(ctx context.Context, _ outmill.JoinID, _ outmill.WorkItemID) error {
	return e.stall(ctx)
}

func (e *everyRole) ReportCompleted(ctx context.Context, _ outmill.JoinID, _ outmill.WorkItemID) error {
	return e.stall(ctx)
}

func (e *everyRole) ReportFailed(ctx context.Context, _ outmill.JoinID, _ outmill.WorkItemID) error {
	return e.stall(ctx)
}

func (e *everyRole) SealJoin(ctx context.Context, _ outmill.JoinID, _ int) error { return e.stall(ctx) }

func (e *everyRole) FinishJoin(ctx context.Context, _ outmill.JoinID, _ roles.FinishRequest) (roles.FinishResult, error) {
	return roles.FinishResult{}, e.stall(ctx)
}

func (e *everyRole) CancelJoin(ctx context.Context, _ outmill.JoinID, _ string) error {
	return e.stall(ctx)
}

func (e *everyRole) GetJoin(ctx context.Context, _ outmill.JoinID) (*roles.Join, error) {
	return nil, e.stall(ctx)
}

func (e *everyRole) ListJoins(ctx context.Context, _ roles.JoinQuery) ([]*roles.Join, error) {
	return nil, e.stall(ctx)
}

func (e *everyRole) ListSteps(ctx context.Context, _ outmill.JoinID, _ outmill.WorkItemID, _ int) ([]roles.JoinStep, error) {
	return nil, e.stall(ctx)
}

func (e *everyRole) DeleteJoins(ctx context.Context, _ int) (int, error) { return 0, e.stall(ctx) }

func (e *everyRole) PrepareSagas(ctx context.Context, _ ...string) error { return e.stall(ctx) }

func (e *everyRole) DedupKey(ctx context.Context, _, _ string) (storekit.DedupInfo, error) {
	return storekit.DedupInfo{}, e.stall(ctx)
}

func (e *everyRole) Examine(ctx context.Context, _ roles.ExamineRequest) (roles.Examination, error) {
	return roles.Examination{}, e.stall(ctx)
}

var (
	_ roles.Joins        = (*everyRole)(nil)
	_ storekit.DedupKeys = (*everyRole)(nil)
	_ roles.Examiner     = (*everyRole)(nil)
	_ roles.Sagas        = (*everyRole)(nil)
)

// bounded is a set whose member "slow" does not answer any more, and what its calls need.
type bounded struct {
	set  *tenants.Set
	slow *memstore.Database
	// probes are the questions of the set by itself.
	probes *atomic.Int64
	// ctx names the member, and inTx also carries a transaction of it.
	ctx, inTx context.Context
	lease     outmill.Lease
	record    *outmill.Record
}

const boundedTimeout = 30 * time.Millisecond

func newBounded(t *testing.T) *bounded {
	t.Helper()
	db := memstore.NewDatabase()
	store := &everyRole{Store: memstore.New(db, memstore.Options{}), db: db}
	t.Cleanup(func() { _ = store.Close() })
	require.NoError(t, store.Ensure(t.Context()))
	// Nothing but the call under test asks the member.
	set, err := tenants.New(t.Context(), tenants.Config{
		Discovery:   tenants.Static{{Key: "slow", Store: store}, {Key: "quick", Store: newSpy(t, "quick")}},
		CallTimeout: boundedTimeout, Refresh: -1, Linger: -1, WithoutRest: true, WithoutWake: true,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	b := &bounded{set: set, slow: db, probes: &store.probes, ctx: tenants.WithTenant(t.Context(), "slow")}
	require.NoError(t, store.Append(t.Context(), &outmill.Record{MessageID: "m", Topic: topic}))
	// On a busy machine a call may take longer than the timeout. A later claim of the same owner then has the record.
	require.Eventually(t, func() bool { return set.RegisterGroup(t.Context(), outmill.Registration{}) == nil }, soon, tick)
	var found []*outmill.Record
	claim := request(1)
	require.Eventually(t, func() bool {
		found, err = set.Claim(t.Context(), claim)
		return err == nil && len(found) == 1
	}, soon, tick)
	b.record, b.lease = found[0], found[0].Lease()
	b.inTx = store.WithTx(b.ctx, db.Begin())
	return b
}

// boundedCalls has each method of a Set that asks a database.
var boundedCalls = map[string]func(b *bounded) error{
	"Abandon": func(b *bounded) error { return b.set.Abandon(b.ctx, []outmill.Settlement{{Lease: b.lease}}) },
	"Ack":     func(b *bounded) error { return b.set.Ack(b.ctx, "", []outmill.Lease{b.lease}) },
	"Append":  func(b *bounded) error { return b.set.Append(b.ctx, &outmill.Record{MessageID: "n", Topic: topic}) },
	"AttachStep": func(b *bounded) error {
		return b.set.AttachStep(b.ctx, outmill.NewJoinID(), outmill.NewWorkItemID())
	},
	"Audited":    func(b *bounded) error { _, err := b.set.Audited(b.ctx, roles.AuditQuery{}); return err },
	"CancelJoin": func(b *bounded) error { return b.set.CancelJoin(b.ctx, outmill.NewJoinID(), "") },
	"Claim":      func(b *bounded) error { _, err := b.set.Claim(b.ctx, request(10)); return err },
	"DeadLetters": func(b *bounded) error {
		_, err := b.set.DeadLetters(b.ctx, outmill.ListQuery{})
		return err
	},
	"DedupKey":            func(b *bounded) error { _, err := b.set.DedupKey(b.ctx, topic, "key"); return err },
	"Delete":              func(b *bounded) error { _, err := b.set.Delete(b.ctx, b.record.ID); return err },
	"DeleteDedupKeys":     func(b *bounded) error { _, err := b.set.DeleteDedupKeys(b.ctx, 10); return err },
	"DeleteFinishedSagas": func(b *bounded) error { _, err := b.set.DeleteFinishedSagas(b.ctx, "order", time.Hour, 10); return err },
	"DeleteJoins":         func(b *bounded) error { _, err := b.set.DeleteJoins(b.ctx, 10); return err },
	"DeleteNotes":         func(b *bounded) error { _, err := b.set.DeleteNotes(b.ctx, 10); return err },
	"DeleteOldAudit":      func(b *bounded) error { _, err := b.set.DeleteOldAudit(b.ctx, 10); return err },
	"DeleteOldSagas":      func(b *bounded) error { _, err := b.set.DeleteOldSagas(b.ctx, 10); return err },
	"DeleteProcessed":     func(b *bounded) error { _, err := b.set.DeleteProcessed(b.ctx, 10); return err },
	"DeleteSaga": func(b *bounded) error {
		saga := &roles.Saga{ID: outmill.NewWorkItemID(), Type: "order", Correlation: "1", Version: 1}
		return b.set.DeleteSaga(b.inTx, saga, roles.SagaOptions{})
	},
	"DeleteWhere": func(b *bounded) error {
		_, err := b.set.DeleteWhere(b.ctx, outmill.ListQuery{Topic: topic})
		return err
	},
	"DropGroup": func(b *bounded) error { _, err := b.set.DropGroup(b.ctx, "none"); return err },
	"Edit": func(b *bounded) error {
		_, err := b.set.Edit(b.ctx, b.record.ID, roles.Edit{Seen: "s", Payload: []byte("{}")})
		return err
	},
	"Ensure":              func(b *bounded) error { return b.set.Ensure(b.ctx) },
	"Examine":             func(b *bounded) error { _, err := b.set.Examine(b.ctx, roles.ExamineRequest{}); return err },
	"ExpireDue":           func(b *bounded) error { _, err := b.set.ExpireDue(b.ctx, 10); return err },
	"ExpireRegistrations": func(b *bounded) error { _, _, err := b.set.ExpireRegistrations(b.ctx, 10); return err },
	"Extend": func(b *bounded) error {
		_, err := b.set.Extend(b.ctx, time.Hour, []outmill.Lease{b.lease})
		return err
	},
	"Fail":         func(b *bounded) error { return b.set.Fail(b.ctx, []outmill.Settlement{{Lease: b.lease}}) },
	"FirstWaiting": func(b *bounded) error { _, err := b.set.FirstWaiting(b.ctx, "", topic, 10); return err },
	"Find":         func(b *bounded) error { _, err := b.set.Find(b.ctx, outmill.ListQuery{}); return err },
	"FindSaga": func(b *bounded) error {
		_, err := b.set.FindSaga(b.ctx, "order", "1", &struct{}{}, roles.SagaOptions{})
		return err
	},
	"FinishJoin": func(b *bounded) error {
		_, err := b.set.FinishJoin(b.ctx, outmill.NewJoinID(), roles.FinishRequest{})
		return err
	},
	"Get":     func(b *bounded) error { _, err := b.set.Get(b.ctx, b.record.ID); return err },
	"GetJoin": func(b *bounded) error { _, err := b.set.GetJoin(b.ctx, outmill.NewJoinID()); return err },
	"Groups":  func(b *bounded) error { _, err := b.set.Groups(b.ctx); return err },
	"HasNote": func(b *bounded) error { _, err := b.set.HasNote(b.ctx, "c", "k"); return err },
	"InsertSaga": func(b *bounded) error {
		return b.set.InsertSaga(b.inTx, &roles.Saga{Type: "order", Correlation: "1"}, &struct{}{}, roles.SagaOptions{})
	},
	"List":      func(b *bounded) error { _, err := b.set.List(b.ctx, outmill.ListQuery{}); return err },
	"ListJoins": func(b *bounded) error { _, err := b.set.ListJoins(b.ctx, roles.JoinQuery{}); return err },
	"ListSagas": func(b *bounded) error {
		_, err := b.set.ListSagas(b.ctx, roles.SagaQuery{Type: "order"}, roles.SagaOptions{})
		return err
	},
	"ListSteps": func(b *bounded) error {
		_, err := b.set.ListSteps(b.ctx, outmill.NewJoinID(), outmill.WorkItemID{}, 10)
		return err
	},
	"Maintain":     func(b *bounded) error { _, err := b.set.Maintain(b.ctx); return err },
	"Pause":        func(b *bounded) error { return b.set.Pause(b.ctx, roles.PauseScope{Topic: topic}, "me", "") },
	"Paused":       func(b *bounded) error { _, err := b.set.Paused(b.ctx); return err },
	"PrepareSagas": func(b *bounded) error { return b.set.PrepareSagas(b.ctx, "order") },
	"PutNote": func(b *bounded) error {
		_, err := b.set.PutNote(b.inTx, roles.Note{Consumer: "c", Key: "k", Retention: time.Hour}, 0)
		return err
	},
	"ReapExpired":   func(b *bounded) error { _, err := b.set.ReapExpired(b.ctx, 10); return err },
	"RegisterGroup": func(b *bounded) error { return b.set.RegisterGroup(b.ctx, outmill.Registration{Group: "audit"}) },
	"Release":       func(b *bounded) error { return b.set.Release(b.ctx, []outmill.Lease{b.lease}) },
	"ReportCompleted": func(b *bounded) error {
		return b.set.ReportCompleted(b.ctx, outmill.NewJoinID(), outmill.NewWorkItemID())
	},
	"ReportFailed": func(b *bounded) error {
		return b.set.ReportFailed(b.ctx, outmill.NewJoinID(), outmill.NewWorkItemID())
	},
	"Requeue":      func(b *bounded) error { _, err := b.set.Requeue(b.ctx, b.record.ID); return err },
	"RequeueWhere": func(b *bounded) error { _, err := b.set.RequeueWhere(b.ctx, outmill.ListQuery{}); return err },
	"Resume":       func(b *bounded) error { _, err := b.set.Resume(b.ctx, roles.PauseScope{Topic: topic}); return err },
	"RetainSaga": func(b *bounded) error {
		saga := &roles.Saga{ID: outmill.NewWorkItemID(), Type: "order", Correlation: "1", Version: 1, Finished: true}
		return b.set.RetainSaga(b.inTx, saga, time.Hour, roles.SagaOptions{})
	},
	"SealJoin":    func(b *bounded) error { return b.set.SealJoin(b.ctx, outmill.NewJoinID(), 1) },
	"Skip":        func(b *bounded) error { _, err := b.set.Skip(b.ctx, b.record.ID); return err },
	"Snooze":      func(b *bounded) error { return b.set.Snooze(b.ctx, []outmill.Settlement{{Lease: b.lease}}) },
	"StartJoin":   func(b *bounded) error { return b.set.StartJoin(b.ctx, &roles.Join{ExpectedSteps: 1}) },
	"Stats":       func(b *bounded) error { _, err := b.set.Stats(b.ctx, 10); return err },
	"StatsOfBusy": func(b *bounded) error { _, err := b.set.StatsOfBusy(b.ctx, 10); return err },
	"Transact": func(b *bounded) error {
		return b.set.Transact(b.ctx, func(context.Context) error { return nil })
	},
	"UpdateSaga": func(b *bounded) error {
		saga := &roles.Saga{ID: outmill.NewWorkItemID(), Type: "order", Correlation: "1", Version: 1}
		return b.set.UpdateSaga(b.inTx, saga, &struct{}{}, roles.SagaOptions{})
	},
}

// asksNothing has each other method, and why it asks no member.
var asksNothing = map[string]string{
	"Attach":          "notes a worker in memory",
	"ChooseListeners": "is the test's own",
	"Close":           "closes the stores, which have bounds of their own",
	"FailingCalls":    "reads memory",
	"HearsOthers":     "reads nothing",
	"InMember":        "makes a context",
	"Keys":            "reads memory",
	"LastPauses":      "reads memory",
	"MayBeCommitted":  "judges an error",
	"Name":            "reads memory",
	"RawClaims":       "returns a function, whose calls are those of Claim",
	"Outbox":          "returns the store itself, whose calls are the user's",
	"OutboxOf":        "returns the store itself, whose calls are the user's",
	"Refresh":         "asks the discovery; a store is opened within a minute, or as long as a long call",
	"ServesTurns":     "reads the members' settings",
	"Statements":      "reads nothing",
	"StatementsFrom":  "reads nothing",
	"Status":          "reads memory",
	"TxLimit":         "reads the members' settings",
	"TxOf":            "reads the context",
	"Wake":            "only notes the function",
}

// noError are the methods that leave out a member that fails, and report that elsewhere.
var noError = map[string]bool{
	"Claim": true, "Examine": true, "RegisterGroup": true, "Maintain": true, "ReapExpired": true, "ExpireDue": true,
	"ExpireRegistrations": true, "DeleteDedupKeys": true, "DeleteFinishedSagas": true, "DeleteJoins": true, "DeleteNotes": true,
	"DeleteOldAudit": true, "DeleteOldSagas": true, "DeleteProcessed": true,
}

// TestSet_Bounds has each method of a Set meet a member that does not answer. A new method needs a line above.
func TestSet_Bounds(t *testing.T) {
	t.Parallel()
	methods := reflect.TypeFor[*tenants.Set]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		call, asks := boundedCalls[name]
		_, exempt := asksNothing[name]
		require.NotEqual(t, asks, exempt, "%s needs a line in boundedCalls, or a reason in asksNothing", name)
		if exempt {
			continue
		}
		t.Run(name+" ends while a member does not answer, and at once when it is known to hang", func(t *testing.T) {
			t.Parallel()
			b := newBounded(t)
			requireReaches(t, b, name, call)

			hang(t, b)
			const calls = 10
			hung := b.slow.Delayed() - int(b.probes.Load())
			for range calls {
				requireEnds(t, b, name, call)
			}
			// The probe asks once in a while, and more often in calls that take longer. It is counted before it is delayed.
			require.Less(t, b.slow.Delayed()-int(b.probes.Load()), hung+calls, "a member that is known to hang is not asked")
		})
	}
}

// requireReaches has the member hang, and requires that the call asks it and ends. On a busy machine the member may have
// been found to hang before: then it has time to answer, and the call is made again.
func requireReaches(t *testing.T, b *bounded, name string, call func(*bounded) error) {
	t.Helper()
	for began := time.Now(); ; b.slow.Delay(0) {
		require.Eventually(t, func() bool { return b.set.Status().Members[1].State == tenants.StateReady }, soon, tick)
		before := b.slow.Delayed()
		b.slow.Delay(time.Hour)
		requireEnds(t, b, name, call)
		if b.slow.Delayed() > before {
			return
		}
		require.Less(t, time.Since(began), soon, "the call does not reach the member")
	}
}

// requireEnds makes the call with a context that does not end. On a busy machine the other member may be late, too, and
// the error names that one: then the call is made again.
func requireEnds(t *testing.T, b *bounded, name string, call func(*bounded) error) {
	t.Helper()
	for began := time.Now(); ; {
		if member := requireOneEnds(t, b, name, call); member != "quick" || time.Since(began) > soon {
			require.Contains(t, []string{"slow", ""}, member)
			return
		}
	}
}

// requireOneEnds returns the member that the error of the call names.
func requireOneEnds(t *testing.T, b *bounded, name string, call func(*bounded) error) string {
	t.Helper()
	ended := make(chan error, 1)
	// A member that has been late before is not asked.
	asked := b.set.Status().Members[0].State == tenants.StateReady
	go func() { ended <- call(b) }()
	select {
	case err := <-ended:
		if noError[name] && err == nil {
			return ""
		}
		require.ErrorIs(t, err, storekit.ErrStoreAway)
		if noError[name] && !asked {
			return "quick"
		}
		if noError[name] {
			require.ErrorContains(t, err, `member "quick"`, "an error means that all members are late")
			return "quick"
		}
		var in *tenants.MemberError
		require.ErrorAs(t, err, &in)
		require.NotEmpty(t, in.Member)
		return in.Member
	case <-time.After(soon):
		require.FailNow(t, "the call hangs with its member")
	}
	return ""
}

// hang has the set find out that the member hangs.
func hang(t *testing.T, b *bounded) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := b.set.Ack(b.ctx, "", []outmill.Lease{b.lease})
		return errors.Is(err, storekit.ErrStoreAway) && b.set.Status().Members[1].State == tenants.StateFailing
	}, soon, tick)
}

func TestSet_TransactBounds(t *testing.T) {
	t.Parallel()

	t.Run("a function that takes long goes on while its member answers", func(t *testing.T) {
		t.Parallel()
		b := newBounded(t)
		require.NoError(t, b.transactQuick(t, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * boundedTimeout):
				return nil
			}
		}))
	})

	t.Run("a function whose member does not answer any more gets a canceled context, and the error tells why", func(t *testing.T) {
		t.Parallel()
		b := newBounded(t)
		err := b.set.Transact(b.inTx, func(ctx context.Context) error {
			b.slow.Delay(time.Hour)
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, storekit.ErrStoreAway)
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("the error of a function is returned as it is", func(t *testing.T) {
		t.Parallel()
		b := newBounded(t)
		own := errors.New(uuid.NewString())
		require.Equal(t, own, b.transactQuick(t, func(context.Context) error { return own }))
	})
}

// transactQuick runs the function in the member that answers. On a busy machine that one may be late too: then it is
// tried again.
func (b *bounded) transactQuick(t *testing.T, fn func(ctx context.Context) error) error {
	t.Helper()
	for began := time.Now(); ; {
		err := b.set.Transact(tenants.WithTenant(t.Context(), "quick"), fn)
		if !errors.Is(err, storekit.ErrStoreAway) || time.Since(began) > soon {
			return err
		}
	}
}
