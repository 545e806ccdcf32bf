package sqlserver

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlHurry makes the records that wait for joins due. A record that is being handled is made
	// due by Outbox_Snooze. A record that an open transaction has appended checks its join when
	// it is handled.
	sqlHurry = asMaintenance + `DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
UPDATE o SET AvailableAt = @now, NextAttemptAt = @now FROM [dbo].[Outbox] AS o WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    JOIN (SELECT CONVERT(BINARY(16), [value], 1) AS JoinIdBytes FROM OPENJSON(@joins)) AS j ON o.WaitsFor = j.JoinIdBytes
    WHERE o.WaitsFor IS NOT NULL AND o.Stage IN (2, 3) AND o.AvailableAt > @now`

	// countedMembers does not wait for open appends of other transactions: their steps are not
	// counted.
	countedMembers = ` WITH (READCOMMITTEDLOCK, READPAST, INDEX([IX_OutboxJoinMember_Join]))`

	// ofJoins joins with a set. With IN (SELECT …), a seek would depend on the optimizer's
	// turning it into a join.
	ofJoins = `JOIN (SELECT DISTINCT CONVERT(BINARY(16), [value], 1) AS JoinIdBytes FROM OPENJSON(@joins)) AS i
		ON i.JoinIdBytes = j.JoinIdBytes`

	sqlJoinsOf = `SELECT ` + joinColumns + `, 0 FROM [dbo].[OutboxJoin] AS j WITH (FORCESEEK)
    ` + ofJoins + ` ORDER BY j.JoinIdBytes`

	// sqlJoinsToFill also counts the members of joins that may be full.
	sqlJoinsToFill = atReadCommitted + `SELECT ` + joinColumns + `, CASE WHEN j.ExpectedSteps IS NULL THEN 0 ELSE (SELECT COUNT(*)
		FROM [dbo].[OutboxJoinMember] AS m` + countedMembers + ` WHERE m.JoinIdBytes = j.JoinIdBytes) END
    FROM [dbo].[OutboxJoin] AS j WITH (READCOMMITTEDLOCK, FORCESEEK) ` + ofJoins + ` ORDER BY j.JoinIdBytes`
)

func hexes[T ~[16]byte](ids []T) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = hex(id)
	}
	return texts
}

// checkSteps refuses steps that a join cannot accept before anything is written, so that a
// caller's transaction stays usable.
func (a *appending) checkSteps(ctx context.Context, on querier) error {
	return storekit.CheckSteps(a.Records, func(ids []outmill.JoinID) ([]*storekit.JoinState, error) { return a.s.joinsToFill(ctx, on, ids) })
}

// members are the steps of the append.
func (a *appending) members(table *storekit.RoutingTable) []memberRow {
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
