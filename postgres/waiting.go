package postgres

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.WaitingReader = (*Store)(nil)

const sinceAppend = "greatest(next_at, created_at)"

// waitingParts are the parts of the records that wait, each in the order of its index.
var waitingParts = []struct {
	stage             int
	due, where, order string
}{
	{storekit.StageReady, sinceAppend, "stage = 0 AND num_nulls(turn) = 1", "seq"},
	{storekit.StageReady, sinceAppend, "stage = 0 AND num_nulls(turn) = 0", "seq"},
	{storekit.StageHeld, sinceAppend, "stage = 1", "seq"},
	{storekit.StageAside, sinceAppend, "stage = -1", "paused_by, seq"},
	{storekit.StageWaiting, "available_at", "stage = 2 AND available_at <= statement_timestamp()", "stage, available_at"},
	{storekit.StageWaiting, "available_at", "stage = 2 AND available_at > statement_timestamp()", "stage, available_at"},
	{storekit.StageDelayed, "available_at", "stage = 3 AND available_at <= statement_timestamp()", "stage, available_at"},
	{storekit.StageLeased, "available_at", "stage = 4 AND available_at <= statement_timestamp()", "available_at"},
	{storekit.StageLeased, "available_at", "stage = 4 AND available_at > statement_timestamp()", "available_at"},
}

// logWaitingStages are those of the parts of the log, behind the parts of the records. Leased records of
// the log have no failed attempt, so those whose lease has not ended are left out.
var logWaitingStages = []int{storekit.StageReady, storekit.StageReady, storekit.StageLeased}

var (
	sqlWaiting         = waitingIn(`grp = $3::text`)
	sqlWaitingUnrouted = waitingIn(`grp IS NULL`)

	// sqlLogWaiting is the same for the line $1 of the log.
	sqlLogWaiting = `(SELECT 0, id, created_at, key, tenant_id, 0 FROM {p:log} WHERE line = $1::bigint
	AND pos > coalesce((SELECT pos ` + newestBatch + `), -1) ORDER BY pos LIMIT $2::bigint)
UNION ALL (SELECT 1, l.id, l.created_at, l.key, l.tenant_id, 0 FROM {p:log_unfinished}($1::bigint, pg_current_snapshot()) AS c
	CROSS JOIN LATERAL (SELECT id, created_at, key, tenant_id FROM {p:log} WHERE line = $1::bigint
	AND pos > c.from_pos AND pos <= c.to_pos AND xid = c.xid ORDER BY pos LIMIT $2::bigint) AS l LIMIT $2::bigint)
UNION ALL (SELECT 2, l.id, f.lease_until, l.key, l.tenant_id, 0 FROM (SELECT b.line, b.lease_until, u.pos FROM {p:batches} AS b
	CROSS JOIN LATERAL unnest(b.positions) WITH ORDINALITY AS u (pos, nth)
	WHERE ` + inWorkOfLine + ` AND b.lease_until <= statement_timestamp() AND get_bit(b.done, u.nth::integer - 1) = 0
	LIMIT $2::bigint) AS f ` + ofLog + `)`
)

// waitingIn reads the first $2 records of each part, of the topic $1. The first row has the time.
func waitingIn(group string) string {
	each := []string{`SELECT -1, NULL::uuid, statement_timestamp(), '', NULL, 0`}
	for i, p := range waitingParts {
		each = append(each, `(SELECT `+strconv.Itoa(i)+`, id, `+p.due+`, key, tenant_id, attempts FROM {p:records} WHERE `+group+
			` AND topic = $1::text AND `+p.where+` ORDER BY grp, topic, `+p.order+` LIMIT $2::bigint)`)
	}
	return strings.Join(each, "\nUNION ALL ")
}

// FirstWaiting returns the first records of a group and topic that wait. See storekit.WaitingReader.
func (s *Store) FirstWaiting(ctx context.Context, group, topic string, limit int) (storekit.Waiting, error) {
	const operation = "first waiting"
	if err := storekit.CheckWaiting(limit); err != nil {
		return storekit.Waiting{}, s.explain(ctx, operation, err)
	}
	logged, err := s.seesLog(ctx, operation)
	if err != nil {
		return storekit.Waiting{}, err
	}
	found, err := s.firstWaiting(ctx, operation, []groupTopic{{group, topic}}, limit, logged)
	if err != nil {
		return storekit.Waiting{}, err
	}
	return found[0], nil
}

// firstWaiting returns the first records of each of the topics of groups, in one round trip.
func (s *Store) firstWaiting(
	ctx context.Context, operation string, lines []groupTopic, limit int, logged bool,
) ([]storekit.Waiting, error) {
	found := make([]storekit.Waiting, len(lines))
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		var steps []step
		read := make([]*waitingRows, len(lines))
		for i, of := range lines {
			read[i] = newWaitingRows(limit)
			steps = append(steps, read[i].steps(of, limit, logged)...)
		}
		err := t.finish(ctx, steps...)
		for i, rows := range read {
			found[i] = rows.of.At(rows.now)
		}
		return err
	})
	return found, err
}

// waitingRows collects the rows of one topic of a group.
type waitingRows struct {
	of  *storekit.WaitingOf
	now time.Time
}

func newWaitingRows(limit int) *waitingRows {
	var stages []int
	for _, p := range waitingParts {
		stages = append(stages, p.stage)
	}
	return &waitingRows{of: storekit.NewWaitingOf(limit, append(stages, logWaitingStages...)...)}
}

func (w *waitingRows) steps(of groupTopic, limit int, logged bool) []step {
	if of.group == "" {
		return []step{{template: sqlWaitingUnrouted, args: []any{of.topic, limit}, row: w.add(0)}}
	}
	records := step{template: sqlWaiting, args: []any{of.topic, limit, of.group}, row: w.add(0)}
	if !logged {
		return []step{records}
	}
	// The log is read first, because records move from the log to the records.
	log := step{template: sqlLogWaiting, args: []any{lineOf(of.group, of.topic), limit}, row: w.add(len(waitingParts))}
	return []step{log, records}
}

// add returns the function that adds the rows of a statement whose first part has this number.
func (w *waitingRows) add(first int) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var r storekit.WaitingRecord
		var part int
		var id pgtype.UUID
		var due pgtype.Timestamptz
		var tenant *string
		if err := scan(&part, &id, &due, &r.Key, &tenant, &r.Attempts); err != nil {
			return err
		}
		if part < 0 {
			w.now = utc(due)
			return nil
		}
		r.ID, r.DueAt, r.TenantID = outmill.WorkItemID(id.Bytes), utc(due), textOf(tenant)
		w.of.Add(first+part, r)
		return nil
	}
}
