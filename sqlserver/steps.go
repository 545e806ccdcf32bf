package sqlserver

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/routing"
	"github.com/outmill/outmill/internal/steps"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlHurry makes due what waits for joins. Records whose handling goes on come
	// by Outbox_Snooze; what an open transaction has appended looks at its join when
	// it is handled.
	sqlHurry = asMaintenance + `DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
UPDATE o SET AvailableAt = @now, NextAttemptAt = @now FROM [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    JOIN (SELECT CONVERT(BINARY(16), [value], 1) AS JoinIdBytes FROM OPENJSON(@joins)) AS j ON o.WaitsFor = j.JoinIdBytes
    WHERE o.WaitsFor IS NOT NULL AND o.Stage IN (2, 3) AND o.AvailableAt > @now`

	// countedMembers waits for no append of another transaction that is open: its
	// steps are not counted.
	countedMembers = ` WITH (READCOMMITTEDLOCK, READPAST, INDEX([IX_OutboxJoinMember_Join]))`

	// ofJoins is a join on a set, because a seek in an IN (SELECT …) takes the optimizer
	// to turn it into one.
	ofJoins = `JOIN (SELECT DISTINCT CONVERT(BINARY(16), [value], 1) AS JoinIdBytes FROM OPENJSON(@joins)) AS i ON i.JoinIdBytes = j.JoinIdBytes`

	sqlJoinsOf = `SELECT ` + joinColumns + `, 0 FROM [dbo].[OutboxJoin] AS j WITH (FORCESEEK)
    ` + ofJoins + ` ORDER BY j.JoinIdBytes`

	// sqlJoinsToFill also counts the members of joins that may be full.
	sqlJoinsToFill = atReadCommitted + `SELECT ` + joinColumns + `, CASE WHEN j.ExpectedSteps IS NULL THEN 0 ELSE (SELECT COUNT(*) FROM [dbo].[OutboxJoinMember] AS m` + countedMembers + ` WHERE m.JoinIdBytes = j.JoinIdBytes) END
    FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, FORCESEEK) ` + ofJoins + ` ORDER BY j.JoinIdBytes`
)

// hurryWithin bounds what comes after a commit.
const hurryWithin = 5 * time.Second

// hurry makes due what waits for those of the joins that are decided, or have
// ended.
//
// It comes after the commit of whatever may have decided them, in a transaction
// of its own that locks no join, so that it is in nobody's way. It cannot miss a
// record that is being snoozed: a snooze looks at the join after its own commit,
// so one of the two sees the other. If the process dies in between, the record's
// snooze ends soon by itself.
func (s *Store) hurry(ctx context.Context, ids []outmill.JoinID) {
	if len(ids) == 0 {
		return
	}
	// What decided the joins is done, whatever becomes of the caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hurryWithin)
	defer cancel()
	if err := s.hurryDecided(ctx, ids); err != nil {
		s.logger.Error("What waits for a decided join was not made due; it is when its snooze ends", err, watermill.LogFields{"joins": len(ids)})
	}
}

func (s *Store) hurryDecided(ctx context.Context, ids []outmill.JoinID) error {
	found, err := s.readJoins(ctx, "hurry", ids)
	if err != nil {
		return err
	}
	var decided []outmill.JoinID
	for _, j := range found {
		if status, _ := j.Decide(false, j.late); j.Status != storekit.JoinPending || status != storekit.JoinPending {
			decided = append(decided, j.ID)
		}
	}
	if len(decided) == 0 {
		return nil
	}
	err = s.run(ctx, "hurry", call{template: sqlHurry, args: []any{named("joins", jsonOf(hexes(decided)))}})
	if err == nil {
		s.bell.Ring()
	}
	return err
}

func hexes[T ~[16]byte](ids []T) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = hex(id)
	}
	return texts
}

// checkSteps refuses steps that a join does not take, before anything is
// written, so that a caller's transaction stays usable.
func (a *appending) checkSteps(ctx context.Context, on querier) error {
	wanted := map[outmill.JoinID]int{}
	var ids []outmill.JoinID
	for _, record := range a.Records {
		for _, id := range record.Joins {
			if wanted[id]++; wanted[id] == 1 {
				ids = append(ids, id)
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var found []countedJoin
	if err := a.s.do(ctx, on, joinsCall(sqlJoinsToFill, &found, ids...)); err != nil {
		return err
	}
	known := map[outmill.JoinID]*countedJoin{}
	for i := range found {
		known[found[i].ID] = &found[i]
	}
	for id, n := range wanted {
		if err := known[id].takes(id, n); err != nil {
			return err
		}
	}
	return nil
}

// takes refuses n more steps: see steps.Takes. j is nil where there is no such
// join.
func (j *countedJoin) takes(id outmill.JoinID, n int) error {
	if j == nil {
		return steps.Takes(id, nil, 0, n)
	}
	return steps.Takes(id, &j.Join, j.members, n)
}

// members are the steps of the append.
func (a *appending) members(table *routing.Table) []memberRow {
	var rows []memberRow
	for i, r := range a.Records {
		message := r.MessageID
		if message == "" {
			message = a.IDs[i].String()
		}
		for _, id := range r.Joins {
			rows = append(rows, memberRow{id[:], id.String(), a.IDs[i][:], a.s.text(message), int64(max(1, len(table.Of(r.Topic))))})
		}
	}
	return rows
}
