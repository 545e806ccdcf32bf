package sqlserver

import (
	"context"
	"database/sql"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlSeeWorker may fail because another process has just noted the same name. That is no
	// error.
	sqlSeeWorker = atReadCommitted +
		`UPDATE [dbo].[OutboxWorker] SET SeenAt = SYSUTCDATETIME(), Problems = NULLIF(CAST(@problems AS NVARCHAR(MAX)), N'')
    WHERE GroupName = ` + groupName + ` AND Name = CAST(@worker AS NVARCHAR(255));
IF @@ROWCOUNT = 0
    INSERT [dbo].[OutboxWorker] (GroupName, Name, SeenAt, Problems)
        SELECT @group, @worker, SYSUTCDATETIME(), NULLIF(CAST(@problems AS NVARCHAR(MAX)), N'')
        WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxWorker] WHERE GroupName = ` + groupName + ` AND Name = CAST(@worker AS NVARCHAR(255)))`

	sqlStopWorker = atReadCommitted +
		`UPDATE [dbo].[OutboxWorker] SET SeenAt = SYSUTCDATETIME(), Problems = CAST(@problems AS NVARCHAR(MAX))
    WHERE GroupName = ` + groupName + ` AND Name = CAST(@worker AS NVARCHAR(255))`

	// sqlOldWorkers skips workers that another process is noting.
	sqlOldWorkers = asMaintenance + `DELETE FROM [dbo].[OutboxWorker] WITH (UPDLOCK, READPAST, ROWLOCK) WHERE GroupName = ` + groupName +
		` AND (SeenAt < DATEADD(SECOND, -CAST(@seconds AS INT), ` + serverNow + `)
    OR Name IN (SELECT Name FROM [dbo].[OutboxWorker] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = ` + groupName +
		` ORDER BY SeenAt DESC, Name OFFSET @most ROWS))`

	sqlWorkers = `SELECT GroupName, Name, SeenAt, Problems FROM [dbo].[OutboxWorker] WITH (READCOMMITTEDLOCK)`
	sqlEnded   = `SELECT GroupName, EndedAt FROM [dbo].[OutboxEnding] WITH (READCOMMITTEDLOCK) WHERE Empty = 0`

	// sqlHasEnded lets the janitor leave the row of the generation alone as long as there is
	// nothing to do.
	sqlHasEnded = atReadCommitted + `SELECT CASE WHEN EXISTS (SELECT 1 FROM [dbo].[OutboxGroup] WITH (READCOMMITTEDLOCK, READPAST)
		WHERE ExpiresAt IS NOT NULL AND ExpiresAt <= ` + serverNow + `) THEN 1 ELSE 0 END`

	sqlEndRegistrations = asMaintenance + `UPDATE [dbo].[OutboxMeta] SET Generation = Generation + 1 WHERE OnlyRow = 1;
DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
DECLARE @gone TABLE (GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
DELETE TOP (@limit) FROM [dbo].[OutboxGroup] OUTPUT deleted.GroupName INTO @gone (GroupName) WHERE ExpiresAt IS NOT NULL
AND ExpiresAt <= @now;
UPDATE e SET EndedAt = @now, LookAt = @now, Empty = 0, Others = NULL
    FROM [dbo].[OutboxEnding] AS e WITH (FORCESEEK) JOIN (SELECT DISTINCT GroupName FROM @gone) AS g ON g.GroupName = e.GroupName;
INSERT [dbo].[OutboxEnding] (GroupName, EndedAt, LookAt, Empty) SELECT DISTINCT g.GroupName, @now, @now, 0 FROM @gone AS g
    WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxEnding] AS e WHERE e.GroupName = g.GroupName);
SELECT COUNT(*) FROM @gone`

	sqlNoted = atReadCommitted +
		`SELECT TOP (@limit) GroupName FROM [dbo].[OutboxEnding] WITH (READCOMMITTEDLOCK, READPAST) WHERE LookAt <= ` + serverNow +
		` ORDER BY LookAt`

	// sqlHoldGroups prevents that a registration is added or removed before the transaction ends.
	// Appends can still read the row.
	sqlHoldGroups = asMaintenance + `IF SERVERPROPERTY('Babelfish') = 1
    UPDATE [dbo].[OutboxMeta] SET Generation = Generation WHERE OnlyRow = 1;
SELECT Generation FROM [dbo].[OutboxMeta] WITH (UPDLOCK, ROWLOCK) WHERE OnlyRow = 1`
)

// sqlUndelivered skips from topic to topic of the group's records that are neither dead nor
// processed.
var sqlUndelivered = func() string {
	var kinds []string
	for i, kind := range []string{"Stage = 0", "Stage = 1", "Stage IN (2, 3)", "Stage = 4", "Stage = 5", "PausedBy IS NOT NULL"} {
		kinds = append(kinds, "SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName = "+
			groupName+" AND Topic > @next AND "+kind+" ORDER BY Topic) AS "+string(rune('a'+i)))
	}
	return atReadCommitted + `DECLARE @topic TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @next NVARCHAR(255) = N'';
WHILE @next IS NOT NULL
BEGIN
    SET @next = (SELECT MIN(k.Topic) FROM (
        ` + strings.Join(kinds, "\n        UNION ALL ") + `) AS k);
    IF @next IS NOT NULL
        INSERT @topic (Topic) VALUES (@next);
END
SELECT Topic FROM @topic`
}()

// seeWorker notes the worker, if it has a name, and deletes workers that have not registered for
// long.
func (s *Store) seeWorker(ctx context.Context, operation string, reg outmill.Registration) error {
	group := named("group", reg.Group)
	if reg.Worker != "" {
		err := s.run(ctx, operation, call{template: sqlSeeWorker, args: []any{
			group, named("worker", reg.Worker), named("problems", storekit.EncodeProblems(reg)),
		}})
		if err != nil && number(err) != errDuplicate {
			return err
		}
	}
	return s.run(ctx, operation, call{
		template: sqlOldWorkers, args: []any{group, named("seconds", int64(storekit.KeepWorkersFor.Seconds())),
			named("most", storekit.MaxWorkers)},
	})
}

// ExpireRegistrations removes registrations whose end has passed, and the
// undelivered records of their groups. See outmill.Janitor.
func (s *Store) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	const operation = "expire registrations"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, 0, s.explain(ctx, operation, err)
	}
	return storekit.RegistrationExpiry{
		End: func(ctx context.Context, limit int) (int, error) { return s.endRegistrations(ctx, operation, limit) },
		Noted: func(ctx context.Context, limit int) (groups []string, err error) {
			err = s.run(ctx, operation, call{
				template: sqlNoted, args: []any{named("limit", limit)},
				reset: func() { groups = nil }, sets: []reader{texts(&groups)},
			})
			return groups, err
		},
		Sweep: func(ctx context.Context, group string, limit int) (deleted int, err error) {
			for some := 1; some > 0 && deleted < limit; deleted += some {
				if some, err = s.sweep(ctx, operation, group, min(limit-deleted, maxAtOnce)); err != nil {
					return deleted, err
				}
			}
			return deleted, nil
		},
	}.Expire(ctx, limit)
}

func (s *Store) endRegistrations(ctx context.Context, operation string, limit int) (ended int, err error) {
	for some := maxAtOnce; some == maxAtOnce && ended < limit; ended += some {
		var over bool
		if err := s.run(ctx, operation, call{template: sqlHasEnded, sets: []reader{numbers(&over)}}); err != nil || !over {
			return ended, err
		}
		err := s.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
			return s.do(ctx, tx, call{template: sqlEndRegistrations, args: []any{named("limit", min(limit-ended, maxAtOnce))},
				sets: []reader{numbers(&some)}})
		})
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// sweep deletes undelivered records of topics that the group no longer reads. No registration is
// added at the same time, so the deleted records were appended for a registration that has ended.
func (s *Store) sweep(ctx context.Context, operation, group string, limit int) (deleted int, err error) {
	var counted []outmill.JoinID
	var idle []string
	err = s.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
		var topics, lanes []string
		var generation int64
		table := &storekit.RoutingTable{}
		look := call{
			template: sqlHoldGroups + ";\n" + sqlGroups + ";\n" + sqlUndelivered + ";\n" + sqlTopicsOfLanes, args: []any{named("group", group)},
			sets: []reader{numbers(&generation), registrations(table), texts(&topics), texts(&lanes)},
		}
		if err := s.do(ctx, tx, look); err != nil {
			return err
		}
		counted, idle = nil, table.Unread(group, lanes)
		return s.do(ctx, tx, call{
			template: "[dbo].[Outbox_Sweep]",
			args: []any{
				named("Group", group), set(s, "Topics", "Name", s.names(table.Unread(group, topics))), named("Limit", limit),
				named("Again", int64(storekit.SweepEvery.Seconds())), named("NoteFor", int64(storekit.SweepFor.Seconds())),
			},
			sets: []reader{numbers(&deleted), joinIDs(&counted)},
		})
	})
	if err != nil {
		return 0, err
	}
	s.hurry(ctx, counted)
	return deleted, s.dropLanes(ctx, operation, group, idle)
}
