package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// Half of the notes, and half of the finished sagas, which are nine in ten, are past their
// retention.
const (
	sqlNotes = `INSERT INTO outmill.inbox (consumer, key, delete_at, record)
SELECT 'c' || i % 3, 'm' || i, now() + (i % 2 * 2 - 1) * interval '1 hour', CASE WHEN i % 3 > 0 THEN gen_random_uuid() END
FROM generate_series(1, $1::integer) AS i ON CONFLICT DO NOTHING`

	sqlSagas = `INSERT INTO outmill.sagas (id, type, correlation, version, state, finished, created_at, updated_at)
SELECT ('00000000-0000-7000-a000-' || lpad(to_hex(i), 12, '0'))::uuid, 'order', 'o' || i, 1, '{}', i % 10 > 0, now(),
now() - i % 2 * interval '1 day'
FROM generate_series(1, $1::integer) AS i ON CONFLICT DO NOTHING`
)

// transactions makes the calls of inbox and sagas, in one transaction and without.
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
	e.notesOfRecords()
}

type within func(fn func(ctx context.Context) error) error

func (e *exercising) notes(where string, within within) {
	e.t.Helper()
	note := roles.Note{Consumer: "c1", Key: outmill.NewWorkItemID().String(), Retention: time.Hour}
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
	saga := &roles.Saga{Type: "order", Correlation: outmill.NewWorkItemID().String()}
	for _, c := range []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"insert a saga", func(ctx context.Context) error {
			return e.store.InsertSaga(ctx, saga, &state{1}, roles.SagaOptions{})
		}},
		{"find a saga", func(ctx context.Context) error {
			_, err := e.store.FindSaga(ctx, saga.Type, saga.Correlation, &state{}, roles.SagaOptions{})
			return err
		}},
		{"update a saga", func(ctx context.Context) error {
			return e.store.UpdateSaga(ctx, saga, &state{2}, roles.SagaOptions{})
		}},
		{"update a saga and keep fields", func(ctx context.Context) error {
			return e.store.UpdateSaga(ctx, saga, &state{3}, roles.SagaOptions{KeepUnknown: true})
		}},
		{"delete a saga", func(ctx context.Context) error {
			return e.store.DeleteSaga(ctx, saga, roles.SagaOptions{})
		}},
	} {
		e.call(c.name+" "+where, 1, func() error { return within(c.call) })
	}
}

// notesOfRecords puts a note of a leased record, and one of a lease that was lost.
func (e *exercising) notesOfRecords() {
	e.t.Helper()
	ctx, store := e.t.Context(), e.store
	require.NoError(e.t, store.Append(ctx, made("tnoted", "x", 1)...))
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "tnoted"))
	require.NoError(e.t, err)
	require.Len(e.t, found, 1)
	note := roles.Note{Consumer: "c1", Key: found[0].ID.String(), Retention: time.Hour, Lease: found[0].Lease()}
	put := func() error {
		return store.Transact(ctx, func(ctx context.Context) error { _, err := store.PutNote(ctx, note, time.Second); return err })
	}
	e.call("put a note of a record", 1, put)
	note.Lease.Owner = outmill.NewOwnerToken()
	e.call("put a note of a lost lease", 1, func() error {
		if err := put(); !errors.Is(err, outmill.ErrLeaseLost) {
			return fmt.Errorf("a lost lease: %w", err)
		}
		return nil
	})
}
