package sqlserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Joins = (*Store)(nil)

const (
	sqlStartJoin = atReadCommitted + `SET NOCOUNT ON;
DECLARE @now DATETIME2(6) = SYSUTCDATETIME(), @id BINARY(16) = CONVERT(BINARY(16), @bytes, 1);
INSERT [dbo].[OutboxJoin] (JoinId, JoinIdBytes, GroupingKey, Status, Policy, Quorum, ExpectedSteps, CompletedSteps, FailedSteps, Deadline,
CompleteAtDeadline, Reason, CreatedUtc, LastUpdatedUtc, Metadata)
    SELECT CONVERT(UNIQUEIDENTIFIER, @join), @id, @grouping, 0, @policy, @quorum, @expected, 0, 0,
        CASE WHEN @after IS NOT NULL THEN DATEADD(MICROSECOND, CAST(@after % 1000000 AS INT), DATEADD(SECOND,
CAST(@after / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@after / CAST(86400000000 AS BIGINT) AS INT), @now)))
            WHEN @at IS NOT NULL THEN CONVERT(DATETIME2(6), @at, 126) END,
        @complete, NULL, @now, @now, @metadata
    WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxJoin] WITH (READCOMMITTEDLOCK) WHERE JoinIdBytes = @id);
SELECT @@ROWCOUNT`

	joinColumns = `j.JoinIdBytes, j.GroupingKey, j.Status, j.Policy, j.Quorum, j.ExpectedSteps, j.CompletedSteps, j.FailedSteps, j.Deadline,
		j.CompleteAtDeadline,
    CAST(CASE WHEN j.Deadline <= SYSUTCDATETIME() THEN 1
ELSE 0 END AS BIT), ISNULL(DATEDIFF_BIG(MICROSECOND, SYSUTCDATETIME(), j.Deadline), 0),
    j.Reason, j.CreatedUtc, j.LastUpdatedUtc, j.FinishedUtc, j.Metadata`

	// sqlLockJoins locks the join, and the other joins of a step if a step is given, by an
	// update, in the order of their ids. The empty text is not a valid BINARY, and the server may
	// convert it before it checks whether it is empty, so it is replaced by NULL first.
	sqlLockJoins = `SET NOCOUNT ON;
DECLARE @held TABLE (Place INT NOT NULL IDENTITY(1, 1) PRIMARY KEY, JoinIdBytes BINARY(16) NOT NULL);
INSERT @held (JoinIdBytes) SELECT u.JoinIdBytes FROM (SELECT CONVERT(BINARY(16), @join, 1) AS JoinIdBytes
    UNION SELECT JoinIdBytes FROM [dbo].[OutboxJoinMember] WHERE Step = CONVERT(BINARY(16), CASE WHEN @step <> N''
THEN @step END, 1)) AS u ORDER BY u.JoinIdBytes;
DECLARE @place INT = 1, @joins INT = (SELECT COUNT(*) FROM @held), @jid BINARY(16);
WHILE @place <= @joins
BEGIN
    SET @jid = (SELECT JoinIdBytes FROM @held WHERE Place = @place);
    UPDATE [dbo].[OutboxJoin] SET LastUpdatedUtc = LastUpdatedUtc WHERE JoinIdBytes = @jid;
    SET @place = @place + 1;
END`

	sqlListJoins = `SELECT TOP (@limit) ` + joinColumns + `, 0 FROM [dbo].[OutboxJoin] AS j` + notLocked + `
    WHERE j.JoinIdBytes > CONVERT(BINARY(16), @after, 1) AND (@any = 1 OR j.Status = @status) ORDER BY j.JoinIdBytes`

	sqlListGroup = `SELECT TOP (@limit) ` + joinColumns + `, 0 FROM [dbo].[OutboxJoin] AS j` + notLocked + `
    WHERE j.GroupingKey = CAST(@grouping AS NVARCHAR(255)) AND j.JoinIdBytes > CONVERT(BINARY(16), @after, 1) AND (@any = 1
OR j.Status = @status) ORDER BY j.JoinIdBytes`

	sqlListSteps = `SELECT TOP (@limit) Step, Status FROM [dbo].[OutboxJoinMember]` + notLocked + `
    WHERE JoinIdBytes = CONVERT(BINARY(16), @join, 1) AND Step > CONVERT(BINARY(16), @after, 1) ORDER BY Step`

	sqlCountMembers = atReadCommitted + `SELECT COUNT(*) FROM [dbo].[OutboxJoinMember]` + countedMembers +
		` WHERE JoinIdBytes = CONVERT(BINARY(16), @join, 1)`

	// recordsOfMessage selects all records of a message: the given record and those of its step.
	recordsOfMessage = `(SELECT CONVERT(BINARY(16), @id, 1) AS IdBytes UNION
        SELECT r.IdBytes FROM [dbo].[Outbox] AS a JOIN [dbo].[Outbox] AS r ON r.Step = a.Step
WHERE a.IdBytes = CONVERT(BINARY(16), @id, 1) AND a.Step IS NOT NULL AND r.Step IS NOT NULL)`

	sqlLinesOf = `SELECT DISTINCT o.GroupName, o.Topic FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, FORCESEEK)
    JOIN ` + recordsOfMessage + ` AS i ON i.IdBytes = o.IdBytes
    WHERE o.GroupName IS NOT NULL ORDER BY o.GroupName, o.Topic`

	// sqlRecordToAttach locks all records of the message, by an update. So a session that settles
	// one of them either came first, or comes later and finds the new member.
	sqlRecordToAttach = `SET NOCOUNT ON;
UPDATE o SET Step = o.Step FROM [dbo].[Outbox] AS o WITH (FORCESEEK) JOIN ` + recordsOfMessage + ` AS i ON i.IdBytes = o.IdBytes;
SELECT ISNULL(Step, IdBytes), CASE WHEN WaitsFor IS NULL THEN 0 ELSE 1 END, MessageId FROM [dbo].[Outbox]
WHERE IdBytes = CONVERT(BINARY(16), @id, 1)`

	// sqlLookAtStep marks the record, and returns whether the join already has the step, and the
	// states of all records of the message.
	sqlLookAtStep = `SET NOCOUNT ON;
UPDATE [dbo].[Outbox] SET Step = IdBytes WHERE IdBytes = CONVERT(BINARY(16), @id, 1) AND Step IS NULL;
SELECT (SELECT COUNT(*) FROM [dbo].[OutboxJoinMember] WHERE JoinIdBytes = CONVERT(BINARY(16), @join, 1)
AND Step = CONVERT(BINARY(16), @step, 1)),
    ISNULL(SUM(CASE WHEN Stage < 6 THEN 1 ELSE 0 END), 0), ISNULL(SUM(CASE WHEN Stage = 6 THEN 1 ELSE 0 END), 0), ISNULL(SUM(CASE
WHEN Stage = 7 THEN 1 ELSE 0 END), 0)
FROM [dbo].[Outbox] WHERE Step IS NOT NULL AND Step = CONVERT(BINARY(16), @step, 1)`

	// sqlNoteJoin adds a join to the records of a step.
	sqlNoteJoin = `UPDATE o SET Joins = CASE WHEN o.Joins IS NULL THEN @joinid ELSE CONCAT(o.Joins, N',', @joinid) END
    FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.Step IS NOT NULL AND o.Step = CONVERT(BINARY(16), @step, 1)`

	sqlAddMember = `INSERT [dbo].[OutboxJoinMember] (JoinIdBytes, Step, JoinId, OutboxMessageId, Status, OpenRecords, AckedRecords,
		DeadRecords, Reported, CreatedUtc)
    VALUES (CONVERT(BINARY(16), @join, 1), CONVERT(BINARY(16), @step, 1), CONVERT(UNIQUEIDENTIFIER, @joinid), @message, @status, @open,
@acked, @dead, 0, SYSUTCDATETIME())`

	// sqlStepOfRecord returns the step of any of a message's records. If the record was deleted,
	// the step has the record's own id. The statement runs before the join is locked, because an
	// ack locks the record first and the join second.
	sqlStepOfRecord = `SELECT ISNULL((SELECT Step FROM [dbo].[Outbox]
		WHERE IdBytes = CONVERT(BINARY(16), @of, 1)), CONVERT(BINARY(16), @of, 1))`

	// sqlReport returns whether the join has the step, and whether the step was still pending.
	sqlReport = `SET NOCOUNT ON;
DECLARE @id BINARY(16) = CONVERT(BINARY(16), @step, 1), @jid BINARY(16) = CONVERT(BINARY(16), @join, 1), @members INT, @reported INT = 0;
SET @members = (SELECT COUNT(*) FROM [dbo].[OutboxJoinMember] WHERE JoinIdBytes = @jid AND Step = @id);
IF @pending = 1
BEGIN
    UPDATE [dbo].[OutboxJoinMember] SET Status = @status, Reported = 1 WHERE JoinIdBytes = @jid AND Step = @id AND Status = 0;
    SET @reported = @@ROWCOUNT;
END
SELECT @members, @reported`

	sqlCount = `UPDATE [dbo].[OutboxJoin] SET CompletedSteps = CompletedSteps + @completed, FailedSteps = FailedSteps + @failed,
		LastUpdatedUtc = SYSUTCDATETIME()
    WHERE JoinIdBytes = CONVERT(BINARY(16), @join, 1)`

	sqlSeal = `UPDATE [dbo].[OutboxJoin] SET ExpectedSteps = @expected, LastUpdatedUtc = SYSUTCDATETIME()
		WHERE JoinIdBytes = CONVERT(BINARY(16), @join, 1)`

	sqlEndJoin = `SET NOCOUNT ON;
DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
UPDATE [dbo].[OutboxJoin] SET Status = @status, Reason = @reason, LastUpdatedUtc = @now, FinishedUtc = @now
WHERE JoinIdBytes = CONVERT(BINARY(16), @join, 1);
SELECT @now`

	sqlOldJoins = atReadCommitted +
		`SELECT TOP (@limit) JoinIdBytes FROM [dbo].[OutboxJoin] WHERE FinishedUtc IS NOT NULL AND FinishedUtc <= ` + microsAgo +
		` ORDER BY FinishedUtc`

	// sqlDeleteMembers deletes members in batches, because there may be many.
	sqlDeleteMembers = asMaintenance + `DELETE TOP (@limit) m FROM [dbo].[OutboxJoinMember] AS m WITH (FORCESEEK)
		JOIN (SELECT CONVERT(BINARY(16), [value], 1) AS JoinIdBytes FROM OPENJSON(@joins)) AS j ON m.JoinIdBytes = j.JoinIdBytes;
SELECT @@ROWCOUNT`

	sqlDeleteJoins = asMaintenance + `DELETE j FROM [dbo].[OutboxJoin] AS j WITH (FORCESEEK)
		JOIN (SELECT CONVERT(BINARY(16), [value], 1) AS JoinIdBytes FROM OPENJSON(@joins)) AS g ON j.JoinIdBytes = g.JoinIdBytes;
SELECT @@ROWCOUNT`
)

// The numbers that the functional specification uses.
var (
	joinStatuses = []roles.JoinStatus{roles.JoinPending, roles.JoinCompleted, roles.JoinFailed, roles.JoinCancelled}
	stepStatuses = []roles.StepStatus{roles.StepPending, roles.StepCompleted, roles.StepFailed}
)

func numberOf[T comparable](list []T, status T) int {
	for i, s := range list {
		if s == status {
			return i
		}
	}
	return 0
}

func at[T any](list []T, i int) T {
	if i < 0 || i >= len(list) {
		return list[0]
	}
	return list[i]
}

func scanJoin(scan func(...any) error) (*storekit.JoinState, error) {
	j := &storekit.JoinState{}
	var id []byte
	var status int
	var expected sql.NullInt64
	var micros int64
	var deadline, finished sql.NullTime
	var metadata sql.NullString
	err := scan(&id, sqlkit.Text(&j.GroupingKey), &status, &j.Policy, &j.Quorum, &expected, &j.CompletedSteps, &j.FailedSteps,
		&deadline, &j.CompleteAtDeadline, &j.Late, &micros, sqlkit.Text(&j.Reason), &j.CreatedAt, &j.UpdatedAt, &finished, &metadata, &j.Members)
	if err != nil {
		return nil, err
	}
	j.Status = at(joinStatuses, status)
	j.ExpectedSteps, j.Unsealed = int(expected.Int64), !expected.Valid
	j.Deadline, j.CreatedAt, j.UpdatedAt, j.FinishedAt = utc(deadline), j.CreatedAt.UTC(), j.UpdatedAt.UTC(), utc(finished)
	j.DeadlineIn = sqlkit.Micros(micros)
	if metadata.Valid {
		err = json.Unmarshal([]byte(metadata.String), &j.Metadata)
	}
	return j, errors.Join(err, uuidFrom(id, (*[16]byte)(&j.ID)))
}

// addJoin reads joins.
func addJoin(into *[]*storekit.JoinState) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		j, err := scanJoin(scan)
		*into = append(*into, j)
		return err
	}
}

func joinsCall(template string, into *[]*storekit.JoinState, ids ...outmill.JoinID) call {
	return call{
		template: template, args: []any{named("joins", jsonOf(hexes(ids)))},
		reset: func() { *into = nil }, sets: []reader{addJoin(into)},
	}
}

// StartJoin inserts a join.
func (j joining) StartJoin(ctx context.Context, operation string, join *roles.Join) error {
	tx, err := j.s.txOf(ctx)
	if err != nil {
		return j.s.explain(ctx, operation, err)
	}
	start, started, err := startCall(join)
	if err != nil {
		return j.s.explain(ctx, operation, err)
	}
	work := func(ctx context.Context, on querier) error {
		err := j.s.do(ctx, on, start)
		// If two sessions start the join at once, the primary key refuses one of them.
		if err != nil && number(err) != errDuplicate {
			return err
		}
		if err != nil || *started == 0 {
			return fmt.Errorf("%w: %s", roles.ErrJoinExists, join.ID)
		}
		return nil
	}
	if tx != nil {
		return j.s.within(ctx, operation, tx, work)
	}
	return j.s.try(ctx, operation, func(ctx context.Context) error { return work(ctx, j.s.db) })
}

func startCall(join *roles.Join) (c call, started *int, err error) {
	var metadata sql.NullString
	if len(join.Metadata) > 0 {
		text, err := json.Marshal(join.Metadata)
		if err != nil {
			return call{}, nil, fmt.Errorf("metadata: %w", err)
		}
		metadata = sql.NullString{String: string(text), Valid: true}
	}
	started = new(int)
	deadline, after := when(join.Deadline, join.Timeout)
	return call{template: sqlStartJoin, args: []any{
		named("join", join.ID.String()), named("bytes", hex(join.ID)), named("grouping", some(join.GroupingKey)),
		named("policy", string(join.Policy)),
		named("quorum", join.Quorum), named("expected", sql.NullInt64{Int64: int64(join.ExpectedSteps), Valid: !join.Unsealed}),
		named("after", after), named("at", deadline), named("complete", join.CompleteAtDeadline), named("metadata", metadata),
	}, sets: []reader{numbers(started)}}, started, nil
}

// joinEngine gives the store the methods of roles.Joins that are the same in all stores.
type joinEngine = storekit.JoinEngine

// joining implements what the engine of joins needs of the store.
type joining struct{ s *Store }

// hurry makes the records that wait for the joins due, if the joins are decided.
func (s *Store) hurry(ctx context.Context, ids []outmill.JoinID) {
	storekit.HurryJoins(ctx, joining{s}, ids, s.logger)
}

// Explain adds the name of the operation to an error.
func (j joining) Explain(ctx context.Context, operation string, err error) error {
	return j.s.explain(ctx, operation, err)
}

// ReadJoins reads joins.
func (j joining) ReadJoins(ctx context.Context, operation string, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	var found []*storekit.JoinState
	err := j.s.run(ctx, operation, joinsCall(sqlJoinsOf, &found, ids...))
	return found, err
}

// OnJoin runs work in a transaction that has locked the row of the join.
func (j joining) OnJoin(ctx context.Context, operation string, id outmill.JoinID,
	work func(ctx context.Context, tx storekit.JoinTx, join *storekit.JoinState) error) error {
	err := j.s.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
		t := &joinTx{s: j.s, tx: tx}
		join, err := t.lockJoin(ctx, sqlJoinsOf, id, "")
		if err != nil {
			return err
		}
		return work(ctx, t, join)
	})
	if err == nil {
		j.s.hurry(ctx, []outmill.JoinID{id})
	}
	return err
}

// MakeDue makes the records that wait for the joins due.
func (j joining) MakeDue(ctx context.Context, ids []outmill.JoinID) error {
	err := j.s.run(ctx, "hurry", call{template: sqlHurry, args: []any{named("joins", jsonOf(hexes(ids)))}})
	if err == nil {
		j.s.notifier.Notify()
	}
	return err
}

// Appended logs the record that follows a join, and wakes readers.
func (j joining) Appended(records []*outmill.Record) {
	j.s.logger.Appended(false, records...)
	j.s.notifier.Notify()
}

// joinTx is a transaction on joins.
type joinTx struct {
	s  *Store
	tx *sql.Tx
}

// JoinsToFill reads joins. For sealed joins it also counts the steps.
func (t *joinTx) JoinsToFill(ctx context.Context, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	return t.s.joinsToFill(ctx, t.tx, ids)
}

func (s *Store) joinsToFill(ctx context.Context, on querier, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	var found []*storekit.JoinState
	err := s.do(ctx, on, joinsCall(sqlJoinsToFill, &found, ids...))
	return found, err
}

// CountMembers counts the steps of a join.
func (t *joinTx) CountMembers(ctx context.Context, id outmill.JoinID) (n int, err error) {
	err = t.do(ctx, sqlCountMembers, numbers(&n), named("join", hex(id)))
	return n, err
}

// Seal writes the number of steps of the join.
func (t *joinTx) Seal(ctx context.Context, join *storekit.JoinState) error {
	return t.do(ctx, sqlSeal, nil, named("join", hex(join.ID)), named("expected", join.ExpectedSteps))
}

// End writes the result of the join.
func (t *joinTx) End(ctx context.Context, join *storekit.JoinState) error {
	var now time.Time
	err := t.do(ctx, sqlEndJoin, numbers(&now), named("join", hex(join.ID)), named("status", numberOf(joinStatuses, join.Status)),
		named("reason", some(join.Reason)))
	join.FinishedAt, join.UpdatedAt = now.UTC(), now.UTC()
	return err
}

// Append appends the record that follows a join.
func (t *joinTx) Append(ctx context.Context, record *outmill.Record) (*storekit.Appending, error) {
	a, err := newAppending(t.s, []*outmill.Record{record})
	if err != nil {
		return nil, err
	}
	return a.Appending, a.writeUnchecked(ctx, t.tx)
}

// Report settles the step of that id.
func (t *joinTx) Report(ctx context.Context, join *storekit.JoinState, step outmill.WorkItemID, as roles.StepStatus) (known bool,
	err error) {
	var members, reported int
	err = t.do(ctx, sqlReport, numbers(&members, &reported), named("step", hex(step)), named("join", hex(join.ID)),
		named("status", numberOf(stepStatuses, as)), named("pending", join.Status == roles.JoinPending))
	if err != nil || reported == 0 {
		return members > 0, err
	}
	return true, t.count(ctx, join.ID, storekit.StepCounts{}.Moved(roles.StepPending, as))
}

func (t *joinTx) do(ctx context.Context, template string, row func(scan func(...any) error) error, args ...any) error {
	return t.s.do(ctx, t.tx, call{template: template, args: args, sets: []reader{row}})
}

// lockJoin locks the join, and the joins of the step if one is given, and reads the join.
func (t *joinTx) lockJoin(ctx context.Context, template string, id outmill.JoinID, step string) (*storekit.JoinState, error) {
	if err := t.do(ctx, sqlLockJoins, nil, named("join", hex(id)), named("step", step)); err != nil {
		return nil, err
	}
	var found []*storekit.JoinState
	if err := t.s.do(ctx, t.tx, joinsCall(template, &found, id)); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id)
	}
	return found[0], nil
}

// AttachStep makes a record a step. See roles.Joins.
func (s *Store) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	const operation = "attach step"
	err := s.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
		t := &joinTx{s: s, tx: tx}
		// Lock in the order of claims and settlements: the lines before the record, and the
		// record before the join.
		if err := t.lockLinesOf(ctx, message); err != nil {
			return err
		}
		a := &lateStep{}
		if err := t.do(ctx, sqlRecordToAttach, a.record, named("id", hex(message))); err != nil {
			return err
		}
		join, err := t.lockJoin(ctx, sqlJoinsToFill, id, a.step)
		if err != nil {
			return err
		}
		if a.Found {
			var known int
			err := t.do(ctx, sqlLookAtStep, numbers(&known, &a.Open, &a.Acked, &a.Dead), named("id", hex(message)), named("join", hex(id)),
				named("step", a.step))
			if err != nil {
				return err
			}
			a.Member = known > 0
		}
		if attach, err := a.Check(message, join, s.config.Retain); err != nil || !attach {
			return err
		}
		return t.attach(ctx, id, a)
	})
	if err == nil {
		// A claim that met the record while it was locked has skipped it.
		s.notifier.Notify()
		s.hurry(ctx, []outmill.JoinID{id})
	}
	return err
}

// lockLinesOf locks the lines of all records of the message.
func (t *joinTx) lockLinesOf(ctx context.Context, message outmill.WorkItemID) error {
	var lines [][2]string
	err := t.do(ctx, sqlLinesOf, func(scan func(...any) error) error {
		var l [2]string
		err := scan(&l[0], &l[1])
		lines = append(lines, l)
		return err
	}, named("id", hex(message)))
	for _, l := range lines {
		err = errors.Join(err, t.do(ctx, sqlLockLine, nil, named("group", l[0]), named("topic", l[1])))
	}
	return err
}

// lateStep is a record that becomes a step after its append.
type lateStep struct {
	storekit.LateStep
	step, message string
}

func (a *lateStep) record(scan func(...any) error) error {
	var id []byte
	var step outmill.WorkItemID
	if err := scan(&id, &a.Waits, &a.message); err != nil {
		return err
	}
	err := uuidFrom(id, (*[16]byte)(&step))
	a.Found, a.step = true, hex(step)
	return err
}

func (t *joinTx) attach(ctx context.Context, id outmill.JoinID, a *lateStep) error {
	status := storekit.StepOutcome(a.Open, a.Acked, a.Dead)
	err := t.do(ctx, sqlAddMember, nil, named("join", hex(id)), named("step", a.step), named("joinid", id.String()),
		named("message", a.message),
		named("status", numberOf(stepStatuses, status)), named("open", a.Open), named("acked", a.Acked), named("dead", a.Dead))
	if err == nil {
		err = t.do(ctx, sqlNoteJoin, nil, named("step", a.step), named("joinid", id.String()))
	}
	if err != nil {
		return err
	}
	return t.count(ctx, id, storekit.StepCounts{}.Moved(roles.StepPending, status))
}

// count counts steps that were settled, if there are any.
func (t *joinTx) count(ctx context.Context, id outmill.JoinID, counts storekit.StepCounts) error {
	if counts == (storekit.StepCounts{}) {
		return nil
	}
	return t.do(ctx, sqlCount, nil, named("join", hex(id)), named("completed", counts.Completed), named("failed", counts.Failed))
}

// ReportCompleted settles a step. See roles.Joins.
func (s *Store) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	step, err := s.stepOf(ctx, "report completed", step)
	if err != nil {
		return err
	}
	return s.joinEngine.ReportCompleted(ctx, join, step)
}

// ReportFailed settles a step. See roles.Joins.
func (s *Store) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	step, err := s.stepOf(ctx, "report failed", step)
	if err != nil {
		return err
	}
	return s.joinEngine.ReportFailed(ctx, join, step)
}

// stepOf returns the step of the message.
func (s *Store) stepOf(ctx context.Context, operation string, message outmill.WorkItemID) (step outmill.WorkItemID, err error) {
	var bytes []byte
	err = s.run(ctx, operation, call{template: sqlStepOfRecord, args: []any{named("of", hex(message))}, sets: []reader{numbers(&bytes)}})
	if err == nil {
		err = uuidFrom(bytes, (*[16]byte)(&step))
	}
	return step, err
}

// ListJoins reads joins by status.
func (j joining) ListJoins(ctx context.Context, operation string, query roles.JoinQuery) ([]*storekit.JoinState, error) {
	template, args := sqlListJoins, []any{
		named("limit", query.Limit), named("after", hex(query.After)),
		named("any", query.Status == ""), named("status", numberOf(joinStatuses, query.Status)),
	}
	if query.GroupingKey != "" {
		template, args = sqlListGroup, append(args, named("grouping", query.GroupingKey))
	}
	var found []*storekit.JoinState
	err := j.s.run(ctx, operation, call{
		template: template, args: args, looks: true, reset: func() { found = nil }, sets: []reader{addJoin(&found)},
	})
	return found, err
}

// ListSteps reads steps of a join.
func (j joining) ListSteps(ctx context.Context, operation string, id outmill.JoinID, after outmill.WorkItemID,
	limit int) ([]roles.JoinStep, error) {
	if _, err := j.s.GetJoin(ctx, id); err != nil {
		return nil, err
	}
	var found []roles.JoinStep
	err := j.s.run(ctx, operation, call{
		template: sqlListSteps, args: []any{named("limit", limit), named("join", hex(id)), named("after", hex(after))},
		looks: true, reset: func() { found = nil },
		sets: []reader{func(scan func(...any) error) error {
			var bytes []byte
			var status int
			var step roles.JoinStep
			if err := scan(&bytes, &status); err != nil {
				return err
			}
			step.Status = at(stepStatuses, status)
			err := uuidFrom(bytes, (*[16]byte)(&step.ID))
			found = append(found, step)
			return err
		}},
	})
	return found, err
}

// DeleteJoins deletes joins that ended long ago. See roles.Joins.
func (s *Store) DeleteJoins(ctx context.Context, limit int) (int, error) {
	const operation = "delete joins"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	all := 0
	for all < limit {
		some := min(limit-all, maxAtOnce)
		n, err := s.deleteJoins(ctx, operation, some)
		if all += n; err != nil || n < some {
			return all, err
		}
	}
	return all, nil
}

// deleteJoins deletes up to limit joins. It deletes their members first, in batches, because
// there may be many.
func (s *Store) deleteJoins(ctx context.Context, operation string, limit int) (int, error) {
	var old []outmill.JoinID
	err := s.run(ctx, operation, call{
		template: sqlOldJoins, args: []any{named("limit", limit), named("micros", s.config.RetainJoins.Microseconds())},
		reset: func() { old = nil }, sets: []reader{joinIDs(&old)},
	})
	if err != nil {
		return 0, err
	}
	joins := named("joins", jsonOf(hexes(old)))
	// If there is nothing to delete, a missing right still causes an error.
	for gone := maxAtOnce; gone == maxAtOnce; {
		err := s.run(ctx, operation, call{
			template: sqlDeleteMembers, args: []any{joins, named("limit", maxAtOnce)}, sets: []reader{numbers(&gone)},
		})
		if err != nil {
			return 0, err
		}
	}
	deleted := 0
	err = s.run(ctx, operation, call{template: sqlDeleteJoins, args: []any{joins}, sets: []reader{numbers(&deleted)}})
	return deleted, err
}
