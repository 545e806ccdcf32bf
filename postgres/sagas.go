package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Sagas = (*Store)(nil)

var (
	sqlInsertSagaLast = demanded(sqlInsertSaga)
	sqlUpdateSagaLast = demanded(sqlUpdateSaga)
	sqlDeleteSagaLast = demanded(sqlDeleteSaga)
)

// demanded is a change of a saga that fails, together with the COMMIT after it, if it finds no
// row.
func demanded(change string) string {
	return `WITH changed AS (` + change + `)
SELECT CASE {p:demand}(pg_catalog.count(*), 1) WHEN 1 THEN pg_catalog.max(updated_at) END FROM changed`
}

const (
	sqlFindSaga = `SELECT id::text, version, state::text, finished, created_at, updated_at FROM {p:sagas} WHERE type = $1::text
		AND correlation = $2::text`

	sqlSagasBefore = `SELECT s.id::text, s.type, s.correlation, s.version, s.finished, s.created_at, s.updated_at FROM {p:sagas} AS s
		WHERE s.id < $1::text::uuid ORDER BY s.id DESC LIMIT $2::bigint`

	ofSaga = ` WHERE type = $1::text AND correlation = $2::text AND id = $3::text::uuid AND version = $4::bigint`

	sqlSagaState = `SELECT state::text FROM {p:sagas}` + ofSaga

	// sqlInsertSaga waits for another transaction that is inserting the same saga. If that one
	// commits, it inserts nothing, because an error would end the caller's transaction.
	sqlInsertSaga = `INSERT INTO {p:sagas} (id, type, correlation, version, state, finished, created_at, updated_at)
VALUES ($1::text::uuid, $2::text, $3::text, 1, $4::text::json, $5::boolean, statement_timestamp(), statement_timestamp())
ON CONFLICT (type, correlation) DO NOTHING RETURNING updated_at`

	sqlUpdateSaga = `UPDATE {p:sagas} SET version = version + 1, state = $5::text::json, finished = $6::boolean,
		updated_at = statement_timestamp(), delete_at = NULL` + ofSaga + ` RETURNING updated_at`

	sqlDeleteSaga = `DELETE FROM {p:sagas}` + ofSaga + ` RETURNING updated_at`

	sqlDeleteFinishedSagas = `DELETE FROM {p:sagas} WHERE id = ANY (ARRAY(SELECT id FROM {p:sagas}
	WHERE type = $1::text AND finished AND updated_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	ORDER BY updated_at LIMIT $3::bigint))`
)

// sagaEngine provides the calls of roles.Sagas.
type sagaEngine = sqlkit.SagaEngine

// sagaKeeping is the store as seen by the engine of sagas.
type sagaKeeping struct{ s *Store }

// Explain names the operation of an error.
func (k sagaKeeping) Explain(ctx context.Context, operation string, err error) error {
	return k.s.explain(ctx, operation, err)
}

// InSagas runs work in the caller's transaction, or in one of the store's own.
func (k sagaKeeping) InSagas(ctx context.Context, operation string, _ bool, work func(ctx context.Context, tx sqlkit.SagaTx) error) error {
	tx, err := k.s.TxOf(ctx)
	switch {
	case err != nil:
		return k.s.explain(ctx, operation, err)
	case tx != nil:
		return k.s.within(ctx, operation, tx, func(ctx context.Context, r runner) error { return work(ctx, sagaTx{k.s, r}) })
	}
	return k.s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		if err := work(ctx, sagaTx{k.s, t}); err != nil {
			return err
		}
		return t.finish(ctx)
	})
}

// sagaTx is a transaction on sagas.
type sagaTx struct {
	s *Store
	r runner
}

// Find reads a saga.
func (x sagaTx) Find(ctx context.Context, kind, correlation string) (saga *roles.Saga, state string, found bool, err error) {
	saga = &roles.Saga{}
	var id string
	var created, updated pgtype.Timestamptz
	found, err = x.one(ctx, sqlFindSaga, []any{kind, correlation}, &id, &saga.Version, &state, &saga.Finished, &created, &updated)
	if err == nil && found {
		err = saga.ID.Scan(id)
	}
	saga.CreatedAt, saga.UpdatedAt = utc(created), utc(updated)
	return saga, state, found, err
}

// Before reads sagas with smaller ids.
func (x sagaTx) Before(ctx context.Context, id outmill.WorkItemID, limit int) (sagas []*roles.Saga, err error) {
	err = x.r.run(ctx, step{template: sqlSagasBefore, args: []any{id.String(), int64(limit)}, row: func(scan func(...any) error) error {
		saga := &roles.Saga{}
		var id string
		var created, updated pgtype.Timestamptz
		if err := scan(&id, &saga.Type, &saga.Correlation, &saga.Version, &saga.Finished, &created, &updated); err != nil {
			return err
		}
		saga.CreatedAt, saga.UpdatedAt = utc(created), utc(updated)
		sagas = append(sagas, saga)
		return saga.ID.Scan(id)
	}})
	return sagas, err
}

// State reads the state of a saga.
func (x sagaTx) State(ctx context.Context, saga *roles.Saga) (state string, found bool, err error) {
	found, err = x.one(ctx, sqlSagaState, versionOfSaga(saga), &state)
	return state, found, err
}

// Insert writes a saga.
func (x sagaTx) Insert(ctx context.Context, saga *roles.Saga, state string) (at time.Time, inserted bool, err error) {
	return x.change(ctx, sqlInsertSaga, sqlInsertSagaLast, saga.ID.String(), saga.Type, saga.Correlation, state, saga.Finished)
}

// Update writes the state of a saga.
func (x sagaTx) Update(ctx context.Context, saga *roles.Saga, state string) (at time.Time, updated bool, err error) {
	return x.change(ctx, sqlUpdateSaga, sqlUpdateSagaLast, append(versionOfSaga(saga), state, saga.Finished)...)
}

// Delete deletes a saga.
func (x sagaTx) Delete(ctx context.Context, saga *roles.Saga) (deleted bool, err error) {
	_, deleted, err = x.change(ctx, sqlDeleteSaga, sqlDeleteSagaLast, versionOfSaga(saga)...)
	return deleted, err
}

// change runs a statement and reports whether it has changed a row, and when. last is the
// statement to use if the COMMIT is sent with it.
func (x sagaTx) change(ctx context.Context, template, last string, args ...any) (at time.Time, changed bool, err error) {
	var now pgtype.Timestamptz
	send, commits := x.s.last(ctx, x.r)
	if commits {
		template = last
	}
	err = send(ctx, step{template: template, args: args, row: func(scan func(...any) error) error {
		changed = true
		return scan(&now)
	}})
	if code(err) == codeDemand {
		return time.Time{}, false, nil
	}
	return utc(now), changed, err
}

// DeleteFinished deletes sagas that finished long ago.
func (x sagaTx) DeleteFinished(ctx context.Context, kind string, retention time.Duration, limit int) (deleted int, err error) {
	err = x.r.run(ctx, step{template: sqlDeleteFinishedSagas, args: []any{kind, retention.Microseconds(), int64(limit)}, count: &deleted})
	return deleted, err
}

// one reads the row of a statement, if there is one.
func (x sagaTx) one(ctx context.Context, template string, args []any, into ...any) (found bool, err error) {
	err = x.r.run(ctx, step{template: template, args: args, row: func(scan func(...any) error) error {
		found = true
		return scan(into...)
	}})
	return found, err
}

// versionOfSaga returns the arguments that name a saga and its version.
func versionOfSaga(saga *roles.Saga) []any {
	return []any{saga.Type, saga.Correlation, saga.ID.String(), saga.Version}
}
