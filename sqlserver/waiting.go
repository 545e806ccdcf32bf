package sqlserver

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ storekit.WaitingReader = (*Store)(nil)

const sinceAppend = "CASE WHEN NextAttemptAt > CreatedAt THEN NextAttemptAt ELSE CreatedAt END"

// waitingParts are the parts of the records that wait, each in the order of its index.
var waitingParts = []struct {
	stage             int
	due, where, order string
}{
	{storekit.StageReady, sinceAppend, "Stage = 0", "Seq"},
	{storekit.StageHeld, sinceAppend, "Stage = 1", "Seq"},
	{storekit.StageWaiting, "AvailableAt", "Stage = 2 AND Stage IN (2, 3) AND AvailableAt <= @now", "AvailableAt"},
	{storekit.StageWaiting, "AvailableAt", "Stage = 2 AND Stage IN (2, 3) AND AvailableAt > @now", "AvailableAt"},
	{storekit.StageDelayed, "AvailableAt", "Stage = 3 AND Stage IN (2, 3) AND AvailableAt <= @now", "AvailableAt"},
	{storekit.StageLeased, "AvailableAt", "Stage = 4 AND AvailableAt <= @now", "AvailableAt"},
	{storekit.StageLeased, "AvailableAt", "Stage = 4 AND AvailableAt > @now", "AvailableAt"},
	{storekit.StageAside, sinceAppend, "PausedBy IS NOT NULL", "PausedBy, Seq"},
}

// sqlWaiting reads the first records of each part. The first row has the time.
var (
	sqlWaiting         = waitingIn("GroupName = CAST(@inGroup AS NVARCHAR(255)) AND Topic = CAST(@inTopic AS NVARCHAR(255)) AND ")
	sqlWaitingUnrouted = waitingIn("GroupName IS NULL AND Topic = CAST(@inTopic AS NVARCHAR(255)) AND ")
)

func waitingIn(where string) string {
	each := []string{"SELECT -1 AS Part, CAST(NULL AS BINARY(16)) AS IdBytes, @now AS Due, N'' AS [Key], " +
		"CAST(NULL AS NVARCHAR(255)) AS TenantId, 0 AS RetryCount"}
	for i, p := range waitingParts {
		each = append(each, "SELECT * FROM (SELECT TOP (@limit) "+strconv.Itoa(i)+" AS Part, IdBytes, "+p.due+
			" AS Due, [Key], TenantId, RetryCount FROM [dbo].[Outbox]"+notLocked+" WHERE "+where+p.where+" ORDER BY "+p.order+") AS k"+
			string(rune('a'+i)))
	}
	return "DECLARE @now DATETIME2(6) = SYSUTCDATETIME();\n" + strings.Join(each, "\nUNION ALL ")
}

// FirstWaiting returns the first records of a group and topic that wait. See storekit.WaitingReader.
func (s *Store) FirstWaiting(ctx context.Context, group, topic string, limit int) (storekit.Waiting, error) {
	const operation = "first waiting"
	if err := storekit.CheckWaiting(limit); err != nil {
		return storekit.Waiting{}, s.explain(ctx, operation, err)
	}
	return s.firstWaiting(ctx, operation, group, topic, limit)
}

func (s *Store) firstWaiting(ctx context.Context, operation, group, topic string, limit int) (storekit.Waiting, error) {
	template, args := sqlWaitingUnrouted, []any{named("limit", limit), named("inTopic", topic)}
	if group != "" {
		template, args = sqlWaiting, append(args, named("inGroup", group))
	}
	stages := make([]int, len(waitingParts))
	for i, p := range waitingParts {
		stages[i] = p.stage
	}
	var now time.Time
	var found *storekit.WaitingOf
	err := s.run(ctx, operation, call{
		template: template, args: args, looks: true, reset: func() { found = storekit.NewWaitingOf(limit, stages...) },
		sets: []reader{func(scan func(...any) error) error {
			var r storekit.WaitingRecord
			var part int
			var id []byte
			if err := scan(&part, &id, &r.DueAt, &r.Key, sqlkit.Text(&r.TenantID), &r.Attempts); err != nil {
				return err
			}
			if part < 0 {
				now = r.DueAt
				return nil
			}
			err := uuidFrom(id, (*[16]byte)(&r.ID))
			found.Add(part, r)
			return err
		}},
	})
	if err != nil {
		return storekit.Waiting{}, err
	}
	return found.At(now), nil
}
