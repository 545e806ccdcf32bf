package sqlite

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ storekit.WaitingReader = (*Store)(nil)

// waitingPart is what an index has of the records that wait, in its order.
type waitingPart struct {
	stage             int
	index, where, due string
	order             string
}

const (
	sinceAppend = "max(next_at, created_at)"
	inLater     = " AND available_at <= ?3"
	stillLater  = " AND available_at > ?3"
)

// waitingParts are the parts of the records that wait, each in the order of its index.
var waitingParts = []waitingPart{
	{storekit.StageReady, "line", "stage = 0 AND turn IS NULL", sinceAppend, "seq"},
	{storekit.StageReady, "turn_line", "stage = 0 AND turn IS NOT NULL", sinceAppend, "seq"},
	{storekit.StageHeld, "held", "stage = 1", sinceAppend, "seq"},
	{storekit.StageWaiting, "later", "stage = 2" + inLater, "available_at", "available_at"},
	{storekit.StageWaiting, "later", "stage = 2" + stillLater, "available_at", "available_at"},
	{storekit.StageDelayed, "later", "stage = 3" + inLater, "available_at", "available_at"},
	{storekit.StageLeased, "later", "stage = 4" + inLater, "available_at", "available_at"},
	{storekit.StageLeased, "later", "stage = 4" + stillLater, "available_at", "available_at"},
	{storekit.StageAside, "aside", "stage = -1", sinceAppend, "paused_by, seq"},
}

// sqlWaiting reads the first records of each part.
var sqlWaiting = func() string {
	each := make([]string, len(waitingParts))
	for i, p := range waitingParts {
		each[i] = `SELECT * FROM (SELECT ` + strconv.Itoa(i) + `, id, ` + p.due + `, key, tenant_id, attempts FROM {p:records} INDEXED BY {p:` +
			p.index + `}
	WHERE grp IS ?1 AND topic = ?2 AND ` + p.where + ` ORDER BY ` + p.order + ` LIMIT ?4)`
	}
	return strings.Join(each, "\nUNION ALL ")
}()

// FirstWaiting returns the first records of a group and topic that wait. See storekit.WaitingReader.
func (s *Store) FirstWaiting(ctx context.Context, group, topic string, limit int) (storekit.Waiting, error) {
	const operation = "first waiting"
	if err := storekit.CheckWaiting(limit); err != nil {
		return storekit.Waiting{}, s.explain(ctx, operation, err)
	}
	var found storekit.Waiting
	err := s.read(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		found, err = t.firstWaiting(ctx, groupTopic{sql.NullString{String: group, Valid: group != ""}, topic}, limit)
		return err
	})
	return found, err
}

func (t *txn) firstWaiting(ctx context.Context, of groupTopic, limit int) (storekit.Waiting, error) {
	stages := make([]int, len(waitingParts))
	for i, p := range waitingParts {
		stages[i] = p.stage
	}
	found := storekit.NewWaitingOf(limit, stages...)
	_, err := list(ctx, t, func(rows *sql.Rows, _ *struct{}) error {
		var r storekit.WaitingRecord
		var part int
		var id string
		var due int64
		if err := rows.Scan(&part, &id, &due, &r.Key, sqlkit.Text(&r.TenantID), &r.Attempts); err != nil {
			return err
		}
		var err error
		r.ID, err = outmill.ParseWorkItemID(id)
		r.DueAt = timeOf(due)
		found.Add(part, r)
		return err
	}, sqlWaiting, of.group, of.topic, t.now, limit)
	return found.At(timeOf(t.now)), err
}
