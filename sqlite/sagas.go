package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Sagas = (*Store)(nil)

const (
	sqlFindSaga = `SELECT id, version, state, finished, created_at, updated_at FROM {p:sagas} WHERE type = ?1 AND correlation = ?2`

	sqlSagasBefore = `SELECT id, type, correlation, version, finished, created_at, updated_at FROM {p:sagas} WHERE id < ?1
ORDER BY id DESC LIMIT ?2`

	sqlSagaState = `SELECT state FROM {p:sagas} WHERE type = ?1 AND correlation = ?2 AND id = ?3 AND version = ?4`

	sqlInsertSaga = `INSERT INTO {p:sagas} (id, type, correlation, version, state, finished, created_at, updated_at)
VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?6) ON CONFLICT (type, correlation) DO NOTHING`

	sqlUpdateSaga = `UPDATE {p:sagas} SET version = version + 1, state = ?5, finished = ?6, updated_at = ?7, delete_at = NULL
WHERE type = ?1 AND correlation = ?2 AND id = ?3 AND version = ?4`

	sqlDeleteSaga = `DELETE FROM {p:sagas} WHERE type = ?1 AND correlation = ?2 AND id = ?3 AND version = ?4`

	sqlDeleteFinishedSagas = `DELETE FROM {p:sagas} WHERE id IN (SELECT id FROM {p:sagas} INDEXED BY {p:sagas_finished}
	WHERE type = ?1 AND finished = 1 AND updated_at <= ?2 ORDER BY updated_at LIMIT ?3)`
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
func (k sagaKeeping) InSagas(ctx context.Context, operation string, reads bool,
	work func(ctx context.Context, tx sqlkit.SagaTx) error) error {
	fn := func(ctx context.Context, t *txn) error { return work(ctx, sagaTx{t}) }
	h, err := k.s.txOf(ctx)
	switch {
	case err != nil:
		return k.s.explain(ctx, operation, err)
	case h != nil:
		return k.s.within(ctx, operation, h, fn)
	case reads:
		return k.s.read(ctx, operation, fn)
	}
	return k.s.write(ctx, operation, fn)
}

// sagaTx is a transaction on sagas.
type sagaTx struct{ t *txn }

// Find reads a saga.
func (x sagaTx) Find(ctx context.Context, kind, correlation string) (saga *roles.Saga, state string, found bool, err error) {
	saga = &roles.Saga{}
	var id string
	var created, updated int64
	found, err = x.t.one(ctx, []any{&id, &saga.Version, &state, &saga.Finished, &created, &updated}, sqlFindSaga, kind, correlation)
	if err == nil && found {
		err = saga.ID.Scan(id)
	}
	saga.CreatedAt, saga.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	return saga, state, found, err
}

// Before reads sagas with smaller ids.
func (x sagaTx) Before(ctx context.Context, id outmill.WorkItemID, limit int) ([]*roles.Saga, error) {
	return list(ctx, x.t, scanSaga, sqlSagasBefore, id.String(), limit)
}

func scanSaga(rows *sql.Rows, saga **roles.Saga) error {
	var id string
	var created, updated int64
	s := &roles.Saga{}
	*saga = s
	if err := rows.Scan(&id, &s.Type, &s.Correlation, &s.Version, &s.Finished, &created, &updated); err != nil {
		return err
	}
	s.CreatedAt, s.UpdatedAt = timeOf(created), timeOf(updated)
	return s.ID.Scan(id)
}

// State reads the state of a saga.
func (x sagaTx) State(ctx context.Context, saga *roles.Saga) (state string, found bool, err error) {
	found, err = x.t.one(ctx, []any{&state}, sqlSagaState, versionOfSaga(saga)...)
	return state, found, err
}

// Insert writes a saga.
func (x sagaTx) Insert(ctx context.Context, saga *roles.Saga, state string) (at time.Time, inserted bool, err error) {
	n, err := x.t.exec(ctx, sqlInsertSaga, saga.ID.String(), saga.Type, saga.Correlation, state, saga.Finished, x.t.now)
	return time.UnixMicro(x.t.now).UTC(), n > 0, err
}

// Update writes the state of a saga.
func (x sagaTx) Update(ctx context.Context, saga *roles.Saga, state string) (at time.Time, updated bool, err error) {
	n, err := x.t.exec(ctx, sqlUpdateSaga, append(versionOfSaga(saga), state, saga.Finished, x.t.now)...)
	return time.UnixMicro(x.t.now).UTC(), n > 0, err
}

// Delete deletes a saga.
func (x sagaTx) Delete(ctx context.Context, saga *roles.Saga) (deleted bool, err error) {
	n, err := x.t.exec(ctx, sqlDeleteSaga, versionOfSaga(saga)...)
	return n > 0, err
}

// DeleteFinished deletes sagas that finished long ago.
func (x sagaTx) DeleteFinished(ctx context.Context, kind string, retention time.Duration, limit int) (int, error) {
	return x.t.exec(ctx, sqlDeleteFinishedSagas, kind, x.t.now-retention.Microseconds(), limit)
}

// versionOfSaga returns the arguments that name a saga and its version.
func versionOfSaga(saga *roles.Saga) []any {
	return []any{saga.Type, saga.Correlation, saga.ID.String(), saga.Version}
}
