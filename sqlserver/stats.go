package sqlserver

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// sqlStats goes from topic to topic, and counts the records of each stage up to @limit. Ready
// records are in the order of the appends, so the record that has been due longest is among the
// first.
var sqlStats = func() string {
	of := func(kind string) string {
		return " FROM [dbo].[Outbox]" + notLocked + " WHERE GroupName = t.GroupName AND Topic = t.Topic AND " + kind
	}
	count := func(kind string) string {
		return "(SELECT COUNT(*) FROM (SELECT TOP (@limit) 1 AS one" + of(kind) + ") AS n)"
	}
	counts := func() string {
		dues := []string{
			"SELECT * FROM (SELECT TOP (100) CASE WHEN NextAttemptAt > CreatedAt THEN NextAttemptAt ELSE CreatedAt END AS Due" + of("Stage = 0") +
				" ORDER BY Seq) AS a",
			"SELECT * FROM (SELECT TOP (100) CASE WHEN NextAttemptAt > CreatedAt THEN NextAttemptAt ELSE CreatedAt END AS Due" + of("Stage = 1") +
				" ORDER BY Seq) AS b",
			"SELECT * FROM (SELECT TOP (1) AvailableAt AS Due" + of("Stage = 2 AND Stage IN (2, 3) AND AvailableAt <= @now") +
				" ORDER BY AvailableAt) AS c",
			"SELECT * FROM (SELECT TOP (1) AvailableAt AS Due" + of("Stage = 3 AND Stage IN (2, 3) AND AvailableAt <= @now") +
				" ORDER BY AvailableAt) AS d",
			"SELECT * FROM (SELECT TOP (1) AvailableAt AS Due" + of("Stage = 4 AND AvailableAt <= @now") + " ORDER BY AvailableAt) AS e",
		}
		return count("Stage = 0") + " + " + count("Stage = 1") + " + " + count("Stage = 5") + " + " + count("Stage IN (2, 3)") + " + " +
			count("PausedBy IS NOT NULL") + " + " + count("Stage = 4 AND AvailableAt <= @now") + ",\n    " +
			count("Stage = 4 AND AvailableAt > @now") + ", " +
			count("Stage = 6 AND Stage >= 6") + ", " + count("Stage = 7 AND Stage >= 6") + ",\n    " +
			count("Stage = 2 AND Stage IN (2, 3) AND AvailableAt > @now") + " + " +
			count("Stage = 3 AND Stage IN (2, 3) AND AvailableAt > @now") +
			",\n    (SELECT MIN(Due) FROM (" + strings.Join(dues, "\n        UNION ALL ") + ") AS u)" +
			",\n    CASE WHEN EXISTS (SELECT 1" + of("PausedBy IS NOT NULL") + ") THEN 1 ELSE 0 END"
	}
	routed := counts()
	unrouted := strings.ReplaceAll(routed, "GroupName = t.GroupName", "GroupName IS NULL")
	return `DECLARE @now DATETIME2(6) = SYSUTCDATETIME();
` + leapLines("Stage = 0", "Stage = 1", "Stage IN (2, 3)", "Stage = 4", "Stage = 5", "Stage >= 6", "PausedBy IS NOT NULL") + `
SELECT t.GroupName, t.Topic, ` + routed + ` FROM @line AS t WHERE t.GroupName IS NOT NULL
UNION ALL SELECT t.GroupName, t.Topic, ` + unrouted + ` FROM @line AS t WHERE t.GroupName IS NULL`
}()

// leapLines fills @line with the groups and topics that have records of these stages. It skips
// from one to the next through an index.
func leapLines(kinds ...string) string {
	leap := func(select_, where string) string {
		parts := make([]string, len(kinds))
		for i, kind := range kinds {
			parts[i] = "SELECT * FROM (SELECT TOP (1) " + select_ + " AS Name FROM [dbo].[Outbox]" + notLocked + " WHERE " + where + " AND " + kind +
				" ORDER BY " + select_ + ") AS k" + string(rune('a'+i))
		}
		return "(SELECT MIN(n.Name) FROM (" + strings.Join(parts, "\n    UNION ALL ") + ") AS n)"
	}
	return `DECLARE @group NVARCHAR(255), @topic NVARCHAR(255);
DECLARE @line TABLE (GroupName NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NULL,
Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL);
SET @group = ` + leap("GroupName", "GroupName IS NOT NULL") + `;
WHILE @group IS NOT NULL
BEGIN
    SET @topic = N'';
    WHILE @topic IS NOT NULL
    BEGIN
        SET @topic = ` + leap("Topic", "GroupName = @group AND Topic > @topic") + `;
        IF @topic IS NOT NULL
            INSERT @line (GroupName, Topic) VALUES (@group, @topic);
    END
    SET @group = ` + leap("GroupName", "GroupName > @group") + `;
END
SET @topic = N'';
WHILE @topic IS NOT NULL
BEGIN
    SET @topic = ` + leap("Topic", "GroupName IS NULL AND Topic > @topic") + `;
    IF @topic IS NOT NULL
        INSERT @line (GroupName, Topic) VALUES (NULL, @topic);
END`
}

// Stats counts the records of each group and topic. See outmill.Inspector.
func (s *Store) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	const operation = "stats"
	limit, err := storekit.CheckStats(limit)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	pauses, err := s.readPauses(ctx, operation)
	if err != nil {
		return nil, err
	}
	var found []outmill.TopicStats
	var parts []int
	err = s.run(ctx, operation, call{
		template: sqlStats, args: []any{named("limit", limit)}, looks: true, reset: func() { found, parts = nil, nil },
		sets: []reader{func(scan func(...any) error) error {
			var stats outmill.TopicStats
			var group sql.NullString
			var oldest sql.NullTime
			var aside bool
			if err := scan(&group, &stats.Topic, &stats.Pending, &stats.Leased, &stats.Processed, &stats.Dead,
				&stats.Delayed, &oldest, &aside); err != nil {
				return err
			}
			stats.Group = group.String
			// Pending and Delayed are sums of several stages.
			stats.Pending, stats.Delayed = min(stats.Pending, limit), min(stats.Delayed, limit)
			switch {
			case pauses.Topic(stats.Group, stats.Topic):
			case aside || pauses.HasParts():
				parts = append(parts, len(found))
			default:
				stats.OldestDue = utc(oldest)
			}
			found = append(found, stats)
			return nil
		}},
	})
	for _, i := range parts {
		if err == nil {
			found[i].OldestDue, err = s.oldestUnpaused(ctx, operation, found[i], pauses)
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b outmill.TopicStats) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic))
	})
	return found, nil
}

// dueAtOnce is the number of records of each kind that are compared with the pauses.
const dueAtOnce = 1000

// oldestUnpaused returns the due time of the record of the topic that has been due longest and is
// not paused; zero if there is none.
func (s *Store) oldestUnpaused(
	ctx context.Context, operation string, of outmill.TopicStats, pauses *roles.PauseList,
) (time.Time, error) {
	found, err := s.firstWaiting(ctx, operation, of.Group, of.Topic, dueAtOnce)
	return found.OldestUnpaused(func(r storekit.WaitingRecord) bool { return pauses.Of(of.Group, of.Topic, r.Key, r.TenantID) != 0 }), err
}
