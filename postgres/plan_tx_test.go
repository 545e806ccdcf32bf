package postgres_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Half of the notes, and half of the finished sagas, which are nine in ten, are past their
// retention.
const (
	sqlNotes = `INSERT INTO outmill.inbox (consumer, key, delete_at)
SELECT 'c' || i % 3, 'm' || i, now() + (i % 2 * 2 - 1) * interval '1 hour' FROM generate_series(1, $1::integer) AS i ON CONFLICT DO NOTHING`

	sqlSagas = `INSERT INTO outmill.sagas (id, type, correlation, version, state, finished, created_at, updated_at)
SELECT ('00000000-0000-7000-a000-' || lpad(to_hex(i), 12, '0'))::uuid, 'order', 'o' || i, 1, '{}', i % 10 > 0, now(),
now() - i % 2 * interval '1 day'
FROM generate_series(1, $1::integer) AS i ON CONFLICT DO NOTHING`

	// sqlAckedSteps are steps that nobody has counted yet.
	sqlAckedSteps = `INSERT INTO outmill.acked_steps (step)
SELECT ('00000000-0000-7000-b000-' || lpad(to_hex(i), 12, '0'))::uuid FROM generate_series(1, $1::integer) AS i`
)

// transactions makes the calls of inbox, sagas and acks in transactions, in one transaction
// and without.
func (e *exercising) transactions(limit int) {
	e.t.Helper()
	ctx, store := e.t.Context(), e.store
	for name, within := range map[string]func(fn func(ctx context.Context) error) error{
		"alone":            func(fn func(ctx context.Context) error) error { return fn(ctx) },
		"in a transaction": func(fn func(ctx context.Context) error) error { return store.Transact(ctx, fn) },
	} {
		if e.own && name != "alone" {
			continue
		}
		e.notes(name, within)
		e.sagas(name, within)
	}
	e.call("delete notes", limit, func() error { _, err := store.DeleteNotes(ctx, limit); return err })
	e.call("delete finished sagas", limit, func() error {
		_, err := store.DeleteFinishedSagas(ctx, "order", time.Hour, limit)
		return err
	})
	e.acksInTx(limit)
}

type within func(fn func(ctx context.Context) error) error

func (e *exercising) notes(where string, within within) {
	e.t.Helper()
	note := storekit.Note{Consumer: "c1", Key: outmill.NewWorkItemID().String(), Retention: time.Hour}
	for _, call := range []string{"put a note", "put a note again"} {
		e.call(call+" "+where, 1, func() error {
			return within(func(ctx context.Context) error { _, err := e.store.PutNote(ctx, note, time.Second); return err })
		})
	}
	e.call("look for a note "+where, 1, func() error {
		return within(func(ctx context.Context) error { _, err := e.store.HasNote(ctx, note.Consumer, note.Key); return err })
	})
}

func (e *exercising) sagas(where string, within within) {
	e.t.Helper()
	type state struct{ N int }
	saga := &storekit.Saga{Type: "order", Correlation: outmill.NewWorkItemID().String()}
	for _, c := range []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"insert a saga", func(ctx context.Context) error {
			return e.store.InsertSaga(ctx, saga, &state{1}, storekit.SagaOptions{})
		}},
		{"find a saga", func(ctx context.Context) error {
			_, err := e.store.FindSaga(ctx, saga.Type, saga.Correlation, &state{}, storekit.SagaOptions{})
			return err
		}},
		{"update a saga", func(ctx context.Context) error {
			return e.store.UpdateSaga(ctx, saga, &state{2}, storekit.SagaOptions{})
		}},
		{"update a saga and keep fields", func(ctx context.Context) error {
			return e.store.UpdateSaga(ctx, saga, &state{3}, storekit.SagaOptions{KeepUnknown: true})
		}},
		{"delete a saga", func(ctx context.Context) error {
			return e.store.DeleteSaga(ctx, saga, storekit.SagaOptions{})
		}},
	} {
		e.call(c.name+" "+where, 1, func() error { return within(c.call) })
	}
}

// acksInTx acks records in transactions, and counts their steps.
func (e *exercising) acksInTx(limit int) {
	e.t.Helper()
	ctx, store := e.t.Context(), e.store
	join := &storekit.Join{ExpectedSteps: limit}
	require.NoError(e.t, store.StartJoin(ctx, join))
	steps := made("tacked", "x", limit)
	for _, r := range steps {
		r.Joins = []outmill.JoinID{join.ID}
	}
	require.NoError(e.t, store.Append(ctx, steps...))
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), limit, outmill.OrderNone, "tacked"))
	require.NoError(e.t, err)
	require.Len(e.t, found, limit)
	e.call("hold", limit, func() error { _, err := store.HoldForTx(ctx, time.Hour, leasesOf(found)); return err })
	e.call("ack in a transaction", limit, func() error {
		return store.Transact(ctx, func(ctx context.Context) error { return store.AckInTx(ctx, "w", leasesOf(found)) })
	})
	// It counts a thousand steps in all, and finds the joins of each.
	execute(e.t, store.Pool(), sqlAckedSteps, rows()/10)
	e.call("acked in a transaction", 2000, func() error { return store.AckedInTx(ctx, found) })
	execute(e.t, store.Pool(), "TRUNCATE outmill.acked_steps")
}
