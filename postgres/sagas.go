package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.Sagas = (*Store)(nil)

const (
	sqlFindSaga = `SELECT id::text, version, state::text, finished, created_at, updated_at FROM {p:sagas} WHERE type = $1::text
		AND correlation = $2::text`

	ofSaga = ` WHERE type = $1::text AND correlation = $2::text AND id = $3::text::uuid AND version = $4::bigint`

	sqlSagaState = `SELECT state::text FROM {p:sagas}` + ofSaga

	// sqlInsertSaga waits for another transaction that is inserting the same saga, and
	// fails without an error, which would end the caller's transaction.
	sqlInsertSaga = `INSERT INTO {p:sagas} (id, type, correlation, version, state, finished, created_at, updated_at)
VALUES ($1::text::uuid, $2::text, $3::text, 1, $4::text::json, $5::boolean, statement_timestamp(), statement_timestamp())
ON CONFLICT DO NOTHING RETURNING updated_at`

	sqlUpdateSaga = `UPDATE {p:sagas} SET version = version + 1, state = $5::text::json, finished = $6::boolean,
		updated_at = statement_timestamp()` + ofSaga + ` RETURNING updated_at`

	sqlDeleteSaga = `DELETE FROM {p:sagas}` + ofSaga

	sqlDeleteFinishedSagas = `DELETE FROM {p:sagas} WHERE id = ANY (ARRAY(SELECT id FROM {p:sagas}
	WHERE type = $1::text AND finished AND updated_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	ORDER BY updated_at LIMIT $3::bigint))`
)

// FindSaga reads a saga. See storekit.Sagas.
func (s *Store) FindSaga(ctx context.Context, kind, correlation string, state any, _ storekit.SagaOptions) (*storekit.Saga, error) {
	saga := &storekit.Saga{Type: kind, Correlation: correlation}
	check := func() error {
		if err := storekit.CheckSaga(kind, correlation); err != nil {
			return err
		}
		return storekit.CheckSagaState(state)
	}
	err := s.sagaWork(ctx, "find saga", check, func(ctx context.Context, r runner) error {
		var id, text string
		var created, updated pgtype.Timestamptz
		found := false
		err := r.run(ctx, step{template: sqlFindSaga, args: []any{kind, correlation}, row: func(scan func(...any) error) error {
			found = true
			return scan(&id, &saga.Version, &text, &saga.Finished, &created, &updated)
		}})
		switch {
		case err != nil:
			return err
		case !found:
			return storekit.ErrSagaNotFound
		}
		saga.CreatedAt, saga.UpdatedAt = utc(created), utc(updated)
		return errors.Join(saga.ID.Scan(id), json.Unmarshal([]byte(text), state))
	})
	if err != nil {
		return nil, err
	}
	return saga, nil
}

// InsertSaga stores a new saga. See storekit.Sagas.
func (s *Store) InsertSaga(ctx context.Context, saga *storekit.Saga, state any, _ storekit.SagaOptions) error {
	var text string
	var now pgtype.Timestamptz
	id := saga.ID
	if id.IsZero() {
		id = outmill.NewWorkItemID()
	}
	check := func() (err error) {
		text, err = s.checkSaga(saga, state)
		return err
	}
	err := s.sagaWork(ctx, "insert saga", check, func(ctx context.Context, r runner) error {
		return changeSaga(ctx, r, storekit.ErrSagaExists,
			step{template: sqlInsertSaga, args: []any{id.String(), saga.Type, saga.Correlation, text, saga.Finished}, row: oneTime(&now)})
	})
	if err == nil {
		saga.ID, saga.Version, saga.CreatedAt, saga.UpdatedAt = id, 1, utc(now), utc(now)
	}
	return err
}

// UpdateSaga stores the state of a saga. See storekit.Sagas.
func (s *Store) UpdateSaga(ctx context.Context, saga *storekit.Saga, state any, options storekit.SagaOptions) error {
	var text string
	var now pgtype.Timestamptz
	check := func() (err error) {
		text, err = s.checkSaga(saga, state)
		return err
	}
	of := []any{saga.Type, saga.Correlation, saga.ID.String(), saga.Version}
	err := s.sagaWork(ctx, "update saga", check, func(ctx context.Context, r runner) error {
		next := text
		if options.KeepUnknown {
			var stored string
			err := changeSaga(ctx, r, storekit.ErrSagaConflict,
				step{template: sqlSagaState, args: of, row: func(scan func(...any) error) error { return scan(&stored) }})
			if err != nil {
				return err
			}
			if next, err = storekit.MergeSagaState(stored, text, state, s.config.MaxPayload); err != nil {
				return err
			}
		}
		return changeSaga(ctx, r, storekit.ErrSagaConflict,
			step{template: sqlUpdateSaga, args: append(of[:4:4], next, saga.Finished), row: oneTime(&now)})
	})
	if err == nil {
		saga.Version, saga.UpdatedAt = saga.Version+1, utc(now)
	}
	return err
}

// DeleteSaga deletes a saga. See storekit.Sagas.
func (s *Store) DeleteSaga(ctx context.Context, saga *storekit.Saga, _ storekit.SagaOptions) error {
	check := func() error { return storekit.CheckSaga(saga.Type, saga.Correlation) }
	return s.sagaWork(ctx, "delete saga", check, func(ctx context.Context, r runner) error {
		return changeSaga(ctx, r, storekit.ErrSagaConflict,
			step{template: sqlDeleteSaga, args: []any{saga.Type, saga.Correlation, saga.ID.String(), saga.Version}})
	})
}

// PrepareSagas does nothing, because Ensure makes the table. See storekit.Sagas.
func (s *Store) PrepareSagas(ctx context.Context, kinds ...string) error {
	for _, kind := range kinds {
		if err := storekit.CheckSagaType(kind); err != nil {
			return s.explain(ctx, "prepare sagas", err)
		}
	}
	return nil
}

// DeleteFinishedSagas deletes sagas that finished long ago. See storekit.Sagas.
func (s *Store) DeleteFinishedSagas(ctx context.Context, kind string, retention time.Duration, limit int) (deleted int, err error) {
	check := func() error { return storekit.CheckDeleteFinishedSagas(kind, retention, limit) }
	err = s.sagaWork(ctx, "delete finished sagas", check, func(ctx context.Context, r runner) error {
		return r.run(ctx, step{template: sqlDeleteFinishedSagas, args: []any{kind, retention.Microseconds(), int64(limit)}, count: &deleted})
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// sagaWork runs fn in the transaction of the context, or else in one of the store's own.
func (s *Store) sagaWork(ctx context.Context, operation string, check func() error, fn func(ctx context.Context, r runner) error) error {
	err := check()
	var tx any
	if err == nil {
		tx, err = s.TxOf(ctx)
	}
	switch {
	case err != nil:
		return s.explain(ctx, operation, err)
	case tx != nil:
		return s.within(ctx, operation, tx, fn)
	}
	return s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		if err := fn(ctx, t); err != nil {
			return err
		}
		return t.finish(ctx)
	})
}

func (s *Store) checkSaga(saga *storekit.Saga, state any) (text string, err error) {
	if err := storekit.CheckSaga(saga.Type, saga.Correlation); err != nil {
		return "", err
	}
	return storekit.EncodeSagaState(state, s.config.MaxPayload)
}

// changeSaga runs a statement, and returns none where it has changed or found no row.
func changeSaga(ctx context.Context, r runner, none error, change step) error {
	var n int
	change.count = &n
	err := r.run(ctx, change)
	if err == nil && n == 0 {
		err = none
	}
	return err
}

func oneTime(into *pgtype.Timestamptz) func(scan func(...any) error) error {
	return func(scan func(...any) error) error { return scan(into) }
}
