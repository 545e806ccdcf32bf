package sqlserver

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Sagas = (*Store)(nil)

const (
	ofSaga = ` WHERE Type = CAST(@type AS NVARCHAR(120)) AND Correlation = CAST(@correlation AS NVARCHAR(255))`

	// ofVersion selects the version that the program has read before.
	ofVersion = ofSaga + ` AND IdBytes = CONVERT(BINARY(16), @id, 1) AND Version = CAST(@version AS BIGINT)`

	// sqlFindSaga waits for a transaction that has changed the saga, because the caller could not
	// update an older version.
	sqlFindSaga = atReadCommitted + `SELECT IdBytes, Version, State, Finished, CreatedAt, UpdatedAt
		FROM [dbo].[OutboxSaga] WITH (READCOMMITTEDLOCK)` + ofSaga

	// sqlSagasBefore names its index, because a scan of all sagas may look cheaper than a lookup for
	// each. It leaves out those that an open transaction is changing, like other lists.
	sqlSagasBefore = atReadCommitted + `SELECT TOP (@limit) IdBytes, Type, Correlation, Version, Finished, CreatedAt, UpdatedAt
		FROM [dbo].[OutboxSaga] WITH (READCOMMITTEDLOCK, READPAST, INDEX([IX_OutboxSaga_Id])) WHERE IdBytes < CONVERT(BINARY(16), @id, 1)
		ORDER BY IdBytes DESC`

	sqlSagaState = atReadCommitted + `SELECT State FROM [dbo].[OutboxSaga] WITH (READCOMMITTEDLOCK)` + ofVersion

	// sqlInsertSaga waits for another transaction that is inserting the same saga. It reads
	// before it writes, because a duplicate key would end the caller's transaction under
	// XACT_ABORT.
	sqlInsertSaga = atReadCommitted + `SET NOCOUNT ON;
DECLARE @now DATETIME2(6) = SYSUTCDATETIME(), @of NVARCHAR(255) = @type, @name NVARCHAR(255) = @correlation;
EXEC [dbo].[Outbox_LockName] @Kind = N'saga', @Of = @of, @Name = @name, @Wait = -1;
INSERT [dbo].[OutboxSaga] (Type, Correlation, IdBytes, Version, State, Finished, CreatedAt, UpdatedAt)
    SELECT @of, @name, CONVERT(BINARY(16), @id, 1), 1, @state, @finished, @now, @now
    WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxSaga] WITH (READCOMMITTEDLOCK) WHERE Type = @of AND Correlation = @name);
SELECT @@ROWCOUNT, @now`

	sqlUpdateSaga = atReadCommitted + `SET NOCOUNT ON;
DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
UPDATE [dbo].[OutboxSaga] SET Version = Version + 1, State = @state, Finished = @finished, UpdatedAt = @now,
    DeleteAt = NULL` + ofVersion + `;
SELECT @@ROWCOUNT, @now`

	sqlDeleteSaga = atReadCommitted + `SET NOCOUNT ON;
DELETE FROM [dbo].[OutboxSaga]` + ofVersion + `;
SELECT @@ROWCOUNT`

	// sqlDeleteFinishedSagas reads State, which is in no index: see Outbox_Claim.
	sqlDeleteFinishedSagas = asMaintenance + `DELETE TOP (@limit) FROM [dbo].[OutboxSaga] WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE Type = CAST(@type AS NVARCHAR(120)) AND Finished = 1 AND UpdatedAt <= ` + microsAgo + ` AND State IS NOT NULL;
SELECT @@ROWCOUNT`
)

// maxState bounds a state in bytes: NVARCHAR(MAX) uses two for a character.
const maxState = math.MaxInt32 / 2

// sagaEngine gives the store the methods of roles.Sagas.
type sagaEngine = sqlkit.SagaEngine

// sagaKeeping implements what the engine of sagas needs of the store.
type sagaKeeping struct{ s *Store }

// Explain adds the name of the operation to an error.
func (k sagaKeeping) Explain(ctx context.Context, operation string, err error) error {
	return k.s.explain(ctx, operation, err)
}

// InSagas runs work in the caller's transaction, or in one of the store's own.
func (k sagaKeeping) InSagas(ctx context.Context, operation string, _ bool, work func(ctx context.Context, tx sqlkit.SagaTx) error) error {
	within := func(ctx context.Context, on querier) error { return work(ctx, sagaTx{k.s, on}) }
	tx, err := k.s.txOf(ctx)
	switch {
	case err != nil:
		return k.s.explain(ctx, operation, err)
	case tx != nil:
		return k.s.within(ctx, operation, tx, within)
	}
	return k.s.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error { return within(ctx, tx) })
}

// sagaTx is a transaction on sagas.
type sagaTx struct {
	s  *Store
	on querier
}

// Find reads a saga.
func (x sagaTx) Find(ctx context.Context, kind, correlation string) (saga *roles.Saga, state string, found bool, err error) {
	saga = &roles.Saga{}
	var id []byte
	found, err = x.one(ctx, sqlFindSaga, []any{named("type", kind), named("correlation", correlation)},
		&id, &saga.Version, &state, &saga.Finished, &saga.CreatedAt, &saga.UpdatedAt)
	if err == nil && found {
		err = uuidFrom(id, (*[16]byte)(&saga.ID))
	}
	saga.CreatedAt, saga.UpdatedAt = saga.CreatedAt.UTC(), saga.UpdatedAt.UTC()
	return saga, state, found, err
}

// Before reads sagas with smaller ids.
func (x sagaTx) Before(ctx context.Context, id outmill.WorkItemID, limit int) (sagas []*roles.Saga, err error) {
	err = x.s.do(ctx, x.on, call{template: sqlSagasBefore, args: []any{named("limit", limit), named("id", hex(id))},
		sets: []reader{func(scan func(...any) error) error {
			saga := &roles.Saga{}
			var id []byte
			if err := scan(&id, &saga.Type, &saga.Correlation, &saga.Version, &saga.Finished, &saga.CreatedAt, &saga.UpdatedAt); err != nil {
				return err
			}
			saga.CreatedAt, saga.UpdatedAt = saga.CreatedAt.UTC(), saga.UpdatedAt.UTC()
			sagas = append(sagas, saga)
			return uuidFrom(id, (*[16]byte)(&saga.ID))
		}}})
	return sagas, err
}

// State reads the state of a saga.
func (x sagaTx) State(ctx context.Context, saga *roles.Saga) (state string, found bool, err error) {
	found, err = x.one(ctx, sqlSagaState, versionOfSaga(saga), &state)
	return state, found, err
}

// Insert writes a saga.
func (x sagaTx) Insert(ctx context.Context, saga *roles.Saga, state string) (at time.Time, inserted bool, err error) {
	return x.write(ctx, sqlInsertSaga, []any{
		named("type", saga.Type), named("correlation", saga.Correlation), named("id", hex(saga.ID)), named("state", state),
		named("finished", saga.Finished),
	})
}

// Update writes the state of a saga.
func (x sagaTx) Update(ctx context.Context, saga *roles.Saga, state string) (at time.Time, updated bool, err error) {
	return x.write(ctx, sqlUpdateSaga, append(versionOfSaga(saga), named("state", state), named("finished", saga.Finished)))
}

// Delete deletes a saga.
func (x sagaTx) Delete(ctx context.Context, saga *roles.Saga) (deleted bool, err error) {
	var n int
	_, err = x.one(ctx, sqlDeleteSaga, versionOfSaga(saga), &n)
	return n > 0, err
}

// DeleteFinished deletes sagas that finished long ago, at most maxAtOnce in one statement.
func (x sagaTx) DeleteFinished(ctx context.Context, kind string, retention time.Duration, limit int) (deleted int, err error) {
	for deleted < limit {
		var n int
		some := min(limit-deleted, maxAtOnce)
		_, err := x.one(ctx, sqlDeleteFinishedSagas, []any{named("limit", some), named("type", kind), named("micros", retention.Microseconds())},
			&n)
		if deleted += n; err != nil || n < some {
			return deleted, err
		}
	}
	return deleted, nil
}

// write runs a statement that returns the number of rows that it wrote, and the time.
func (x sagaTx) write(ctx context.Context, template string, args []any) (at time.Time, written bool, err error) {
	var n int
	_, err = x.one(ctx, template, args, &n, &at)
	return at.UTC(), n > 0, err
}

// one reads the row of a statement, and reports whether there is one.
func (x sagaTx) one(ctx context.Context, template string, args []any, into ...any) (found bool, err error) {
	err = x.s.do(ctx, x.on, call{template: template, args: args, sets: []reader{func(scan func(...any) error) error {
		found = true
		return scan(into...)
	}}})
	return found, err
}

// versionOfSaga returns the arguments that identify a saga and its version.
func versionOfSaga(saga *roles.Saga) []any {
	return []any{named("type", saga.Type), named("correlation", saga.Correlation), named("id", hex(saga.ID)), named("version", saga.Version)}
}
