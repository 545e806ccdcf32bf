package sqlserver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	hexadecimal "encoding/hex"
	"encoding/json"
	"errors"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlGeneration = `SELECT Version, Compatible, Generation, ISNULL(CAST(SERVERPROPERTY('Babelfish') AS INT), 0)
		FROM [dbo].[OutboxMeta] WITH (READCOMMITTEDLOCK) WHERE OnlyRow = 1`
	sqlGroups = `SELECT GroupName, Include, Exclude, SeenAt, ExpiresAt, Holding FROM [dbo].[OutboxGroup] WITH (READCOMMITTEDLOCK)
		ORDER BY Place`

	// endsAfter is the time @ttl microseconds from now, or NULL if @ttl is 0.
	endsAfter = `CASE WHEN @ttl > 0 THEN DATEADD(MICROSECOND, CAST(@ttl % 1000000 AS INT), DATEADD(SECOND,
		CAST(@ttl / 1000000 % 86400 AS INT), DATEADD(DAY, CAST(@ttl / CAST(86400000000 AS BIGINT) AS INT), SYSUTCDATETIME()))) END`

	// seeGroup does not make a permanent registration temporary.
	seeGroup = `UPDATE [dbo].[OutboxGroup] SET SeenAt = SYSUTCDATETIME(), ExpiresAt = CASE WHEN ExpiresAt IS NOT NULL THEN ` + endsAfter +
		` END
    WHERE GroupName = ` + groupName + ` AND Selection = CAST(@selection AS CHAR(64))`

	// sqlSeeGroup leaves out a registration that is to hold no longer.
	sqlSeeGroup = atReadCommitted + seeGroup + ` AND (Holding = 0 OR @hold = 1);
SELECT @@ROWCOUNT`

	// sqlAddGroup first updates the row of the generation. Only one registration at a time can do
	// that, so the registrations are in the order of their commits.
	sqlAddGroup = `UPDATE [dbo].[OutboxMeta] SET Generation = Generation + 1 WHERE OnlyRow = 1;
UPDATE [dbo].[OutboxGroup] SET Holding = 0 WHERE GroupName = ` + groupName + ` AND Selection = CAST(@selection AS CHAR(64)) AND @hold = 0;
` + seeGroup + `;
IF @@ROWCOUNT = 0
    INSERT [dbo].[OutboxGroup] (GroupName, Selection, Include, Exclude, SeenAt, ExpiresAt, Holding)
VALUES (@group, @selection, @include, @exclude, SYSUTCDATETIME(), ` + endsAfter + `, @hold)`

	// sqlUnrouted skips from topic to topic through an index.
	sqlUnrouted = atReadCommitted + `DECLARE @topic TABLE (Topic NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @next NVARCHAR(255) = N'';
WHILE @next IS NOT NULL
BEGIN
    SET @next = (SELECT MIN(k.Topic) FROM (
        SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName IS NULL
AND Stage = 0 AND Topic > @next ORDER BY Topic) AS a
        UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName IS NULL
AND Stage IN (2, 3) AND Topic > @next ORDER BY Topic) AS b
        UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName IS NULL
AND Stage = 5 AND Topic > @next ORDER BY Topic) AS c
        UNION ALL SELECT * FROM (SELECT TOP (1) Topic FROM [dbo].[Outbox] WITH (READCOMMITTEDLOCK, READPAST) WHERE GroupName IS NULL
AND Stage >= 6 AND Topic > @next ORDER BY Topic) AS d) AS k);
    IF @next IS NOT NULL
        INSERT @topic (Topic) VALUES (@next);
END
SELECT Topic FROM @topic`

	sqlTopicsOfLanes = `SELECT DISTINCT Topic FROM [dbo].[OutboxLane] WHERE GroupName = ` + groupName

	sqlLockLine = `EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic, @Mode = N'Exclusive'`

	sqlDropLanes = asMaintenance + `DELETE TOP (@limit) l FROM [dbo].[OutboxLane] AS l WHERE l.GroupName = ` + groupName + ` AND l.Topic = ` +
		topicName + `
    AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox] AS o WHERE o.GroupName = l.GroupName AND o.Topic = l.Topic AND o.[Key] = l.[Key]
AND o.Keyed = 1 AND o.Stage = 1 AND o.Stage < 6);
SELECT @@ROWCOUNT`
)

var errRoutesChanged = errors.New("other processes changed the registered groups during each attempt")

// loadRoutes reads the registrations, and keeps them if they are newer than the known ones.
func (s *Store) loadRoutes(ctx context.Context, on querier) (*storekit.RoutingTable, error) {
	var found storekit.SchemaVersion
	var babelfish bool
	table := &storekit.RoutingTable{}
	err := s.do(ctx, on, call{template: sqlGeneration + ";\n" + sqlGroups, sets: []reader{
		numbers(&found.Version, &found.Compatible, &table.Generation, &babelfish), registrations(table),
	}})
	if err != nil {
		return nil, err
	}
	s.babelfish.Store(babelfish)
	if err := schemaError(found); err != nil {
		return nil, err
	}
	s.routes.Keep(table)
	return table, nil
}

// registrations reads the rows of sqlGroups.
func registrations(table *storekit.RoutingTable) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var found storekit.StoredRegistration
		var include, exclude string
		var expires sql.NullTime
		if err := scan(&found.Group, &include, &exclude, &found.SeenAt, &expires, &found.Holding); err != nil {
			return err
		}
		found.SeenAt, found.ExpiresAt = found.SeenAt.UTC(), expires.Time.UTC()
		err := errors.Join(json.Unmarshal([]byte(include), &found.Topics.Include), json.Unmarshal([]byte(exclude), &found.Topics.Exclude))
		table.Registrations = append(table.Registrations, found)
		return err
	}
}

// RegisterGroup makes the group a reader of the topics. See outmill.Queue. It gives records that
// waited for a group to it, 900 in a transaction. Claims in order hand out no record of a topic
// before all its waiting records are adopted.
//
// A record whose transaction was open during the first registration may still be inserted without
// a group. The next claims adopt it.
//
// Each registration of the call takes a few round trips.
func (s *Store) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	const operation = "register group"
	regs = storekit.WithGroups(regs)
	if err := storekit.CheckRegistrations(regs); err != nil || len(regs) == 0 {
		return s.explain(ctx, operation, errors.Join(err, s.usable(ctx)))
	}
	s.life.CheckAgain()
	stopped, regs := storekit.Stopped(regs)
	for _, reg := range stopped {
		err := s.run(ctx, operation, call{template: sqlStopWorker, args: []any{
			named("group", reg.Group), named("worker", reg.Worker), named("problems", storekit.EncodeProblems(reg)),
		}})
		if err != nil {
			return err
		}
	}
	for _, reg := range regs {
		if err := s.register(ctx, operation, reg); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) register(ctx context.Context, operation string, reg outmill.Registration) error {
	include, exclude := lists(reg.Topics)
	who := []any{named("group", reg.Group), named("selection", digest(reg.Topics)), named("ttl", sqlkit.CeilMicros(reg.TTL)),
		named("hold", reg.Hold)}
	var seen int
	err := s.run(ctx, operation, call{template: sqlSeeGroup, args: who, sets: []reader{numbers(&seen)}})
	if err == nil && seen == 0 {
		err = s.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
			return s.do(ctx, tx, call{template: sqlAddGroup, args: append(who, named("include", include), named("exclude", exclude))})
		})
	}
	if err == nil {
		// The worker is written after the registration: without one it may be deleted.
		err = s.seeWorker(ctx, operation, reg)
	}
	if err != nil {
		return err
	}
	adopted, err := s.adoptAll(ctx, operation, reg.Topics)
	if adopted > 0 {
		s.notifier.Notify()
	}
	return err
}

// lists returns the topics' lists in the form of the table.
func lists(topics outmill.Topics) (include, exclude string) {
	return jsonOf(storekit.OrEmpty(topics.Include)), jsonOf(storekit.OrEmpty(topics.Exclude))
}

// digest identifies a selection.
func digest(topics outmill.Topics) string {
	include, exclude := lists(topics)
	sum := sha256.Sum256([]byte(include + exclude))
	return hexadecimal.EncodeToString(sum[:])
}

// adoptAll gives records of the topics that wait for a group to the first group that registered
// for their topic, and returns how many it gave.
func (s *Store) adoptAll(ctx context.Context, operation string, topics outmill.Topics) (adopted int, err error) {
	for {
		waiting, err := s.unrouted(ctx, operation, topics)
		if err != nil || len(waiting) == 0 {
			return adopted, err
		}
		before := adopted
		for topic, first := range waiting {
			n, err := s.adopt(ctx, operation, first, topic)
			if adopted += n; err != nil {
				return adopted, err
			}
		}
		// Another process that adopts the same records may have locked them.
		if adopted == before {
			return adopted, nil
		}
	}
}

// unrouted returns the topics with records that wait for a group, and the first registration for
// each topic.
func (s *Store) unrouted(ctx context.Context, operation string, topics outmill.Topics) (map[string]storekit.StoredRegistration, error) {
	var unrouted []string
	table := &storekit.RoutingTable{}
	err := s.run(ctx, operation, call{
		template: sqlUnrouted + ";\n" + sqlGroups,
		reset:    func() { unrouted, table = nil, &storekit.RoutingTable{} },
		sets: []reader{texts(&unrouted), func(scan func(...any) error) error {
			return registrations(table)(scan)
		}},
	})
	if err != nil {
		return nil, err
	}
	return table.FirstOf(slices.DeleteFunc(unrouted, func(topic string) bool { return !topics.Match(topic) })), nil
}

// adopt gives the topic's records to the registration's group until there are no more, or the
// registration no longer exists.
func (s *Store) adopt(ctx context.Context, operation string, to storekit.StoredRegistration, topic string) (adopted int, err error) {
	for {
		var n int
		err := s.run(ctx, operation, call{
			template: "[dbo].[Outbox_Adopt]",
			args:     []any{named("Group", to.Group), named("Selection", digest(to.Topics)), named("Topic", topic), named("Limit", maxAtOnce)},
			sets:     []reader{numbers(&n)},
		})
		if adopted += n; err != nil || n == 0 {
			return adopted, err
		}
	}
}

// dropLanes deletes the lanes of the topics that have no held records, 900 in a transaction,
// while no claim in order of their topic runs.
func (s *Store) dropLanes(ctx context.Context, operation, group string, topics []string) error {
	for _, topic := range topics {
		line := []any{named("group", group), named("topic", topic)}
		for dropped := maxAtOnce; dropped == maxAtOnce; {
			err := s.runAll(ctx, operation, []call{
				{template: sqlLockLine, args: line},
				{template: sqlDropLanes, args: append(line, named("limit", maxAtOnce)), sets: []reader{numbers(&dropped)}},
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Groups lists the groups. See outmill.Inspector.
func (s *Store) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	var table *storekit.RoutingTable
	var workers []storekit.StoredWorker
	var ended []storekit.EndedGroup
	var pauses pausesRead
	err := s.run(ctx, "list groups", call{
		template: sqlGroups + ";\n" + sqlWorkers + ";\n" + sqlEnded + ";\n" + sqlPauses,
		reset: func() {
			table, workers, ended = &storekit.RoutingTable{}, nil, nil
			pauses.reset()
		},
		sets: append([]reader{
			func(scan func(...any) error) error { return registrations(table)(scan) },
			func(scan func(...any) error) error {
				var w storekit.StoredWorker
				err := scan(&w.Group, &w.Name, &w.SeenAt, sqlkit.Text(&w.Problems))
				w.SeenAt = w.SeenAt.UTC()
				workers = append(workers, w)
				return err
			},
			func(scan func(...any) error) error {
				var e storekit.EndedGroup
				err := scan(&e.Group, &e.At)
				e.At = e.At.UTC()
				ended = append(ended, e)
				return err
			},
		}, pauses.sets()...),
	})
	if err != nil {
		return nil, err
	}
	infos := table.Infos(workers, ended)
	storekit.NamePauses(infos, pauses.keep(s).All())
	return infos, nil
}
