package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlGeneration = `SELECT version, compatible, generation, lane, logged FROM {p:meta} WHERE only_row`
	sqlGroups     = `SELECT grp, array_to_json(include)::text, array_to_json(exclude)::text, seen_at, expires_at, holding FROM {p:groups}
		ORDER BY place`

	// sqlLockGroups lets one registration run at a time, so that the places of registrations
	// are in the order of their commits. Appends only read the groups and do not wait, unless
	// the groups have changed several times during one append: see appending.load.
	sqlLockGroups = `LOCK TABLE {p:groups} IN SHARE ROW EXCLUSIVE MODE`

	// sqlSeeGroup renews a registration. A permanent one stays permanent.
	sqlSeeGroup = `UPDATE {p:groups} SET seen_at = statement_timestamp(),
		expires_at = CASE WHEN expires_at IS NOT NULL THEN ` + endsAfter + ` END
WHERE grp = $1::text AND selection = $2::text`

	// sqlEndHolding gives the registration the place that a new one would have: records without a
	// group that another group has not taken yet stay with that group.
	sqlEndHolding = `UPDATE {p:groups} SET holding = false, place = DEFAULT WHERE grp = $1::text AND selection = $2::text AND holding`

	// sqlSeeGroups leaves out the registrations that are to hold no longer.
	sqlSeeGroups = `UPDATE {p:groups} AS g SET seen_at = statement_timestamp(),
	expires_at = CASE WHEN g.expires_at IS NOT NULL THEN statement_timestamp() + nullif(r.ttl, 0) * interval '1 microsecond' END
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) AS r (grp, selection, ttl, hold)
WHERE g.grp = r.grp AND g.selection = r.selection AND (r.hold OR NOT g.holding)
RETURNING g.grp, g.selection`
	sqlAddGroup = `WITH added AS (
	INSERT INTO {p:groups} (grp, selection, include, exclude, seen_at, expires_at, holding)
	VALUES ($1::text, $2::text, $4::text[], $5::text[], statement_timestamp(), ` + endsAfter + `, $6::boolean)
	ON CONFLICT DO NOTHING RETURNING 1)
UPDATE {p:meta} SET generation = ` + nextGeneration + ` WHERE only_row AND EXISTS (SELECT 1 FROM added)`

	// nextGeneration follows the clock. After a failover to a replica that was behind, or a
	// restore to an earlier time, a counter would repeat a number that publishers remember with
	// other groups.
	nextGeneration = `greatest(generation + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`

	// endsAfter is $3 microseconds from now, NULL if $3 is 0.
	endsAfter = `statement_timestamp() + nullif($3::bigint, 0) * interval '1 microsecond'`

	// sqlAdopt takes the ready records in their order, by id so that it also finds those that
	// change during the statement. Ordered claims return no record of a topic while any of its
	// records waits for a group. sqlAdopt locks the registration's row: a transaction that
	// removes the registration waits, and then finds the records that the group was given.
	sqlAdopt = `WITH g AS MATERIALIZED (SELECT 1 FROM {p:groups} WHERE grp = $1::text AND selection = $4::text AND NOT holding
	FOR SHARE)
UPDATE {p:records} SET grp = $1::text WHERE id = ANY (ARRAY(
	SELECT id FROM (
		(SELECT id FROM {p:records} WHERE grp IS NULL AND topic = $2::text AND stage = 0 AND num_nulls(turn) = 1
			ORDER BY grp, topic, seq LIMIT $3::bigint)
		UNION ALL (SELECT id FROM {p:records} WHERE grp IS NULL AND topic = $2::text AND stage = 0 AND num_nulls(turn) = 0
			ORDER BY grp, topic, seq LIMIT $3::bigint)
		UNION ALL (SELECT id FROM {p:records} WHERE grp IS NULL AND topic = $2::text AND stage IN (2, 3) LIMIT $3::bigint)
		UNION ALL (SELECT id FROM {p:records} WHERE grp IS NULL AND topic = $2::text AND stage = 5 LIMIT $3::bigint)
		UNION ALL (SELECT id FROM {p:records} WHERE grp IS NULL AND topic = $2::text AND stage >= 6 LIMIT $3::bigint)) AS r LIMIT $3::bigint))
	AND coalesce(grp) IS NULL AND EXISTS (SELECT 1 FROM g)`
)

var (
	// sqlUnrouted finds the topics by one index search each.
	sqlUnrouted = leaps("grp IS NULL", "stage = 0", "stage IN (2, 3)", "stage = 5", "stage >= 6")

	sqlTopicsOfLanes = leap(`{p:lanes} WHERE grp = $1::text`)
)

// leaps selects the topics of the records that belong to a group and to one of the kinds, each
// kind by an index. Its cost grows with the topics and not with their records.
func leaps(group string, kinds ...string) string {
	each := make([]string, len(kinds))
	for i, kind := range kinds {
		each[i] = "(" + leap(`{p:records} WHERE `+group+` AND `+kind) + ")"
	}
	return strings.Join(each, "\nUNION ")
}

// leap selects topics of one group's rows.
func leap(from string) string {
	// The order has grp too, or an index does not serve it if grp is null.
	next := `SELECT topic FROM ` + from
	return `WITH RECURSIVE t AS (
	(` + next + ` ORDER BY grp, topic LIMIT 1)
	UNION ALL SELECT (` + next + ` AND topic > t.topic ORDER BY grp, topic LIMIT 1) FROM t WHERE topic IS NOT NULL)
SELECT topic FROM t WHERE topic IS NOT NULL`
}

var errRoutesChanged = errors.New("the registered groups changed while the records were written, again and again")

// loadRoutes reads the registrations within a transaction, after other steps, and keeps them if
// they are newer than the known ones.
func (s *Store) loadRoutes(ctx context.Context, r runner, before ...step) (*storekit.RoutingTable, error) {
	var found storekit.SchemaVersion
	var lanes lanes
	table := &storekit.RoutingTable{}
	err := r.run(ctx, append(before,
		step{template: sqlGeneration, row: func(scan func(...any) error) error {
			return scan(&found.Version, &found.Compatible, &table.Generation, &lanes.write, &lanes.logged)
		}},
		groupsStep(table))...)
	if err != nil {
		return nil, err
	}
	if err := found.Check(schemaVersion); err != nil {
		return nil, err
	}
	s.setLanes(lanes)
	s.routes.Keep(table)
	return table, nil
}

const sqlKeepRoutes = `SELECT pg_advisory_xact_lock_shared($1::bigint)`

// lockRoutes is the first step of a transaction that changes the registered groups. It waits
// for transactions that called keepRoutes.
func (s *Store) lockRoutes() step {
	return step{template: sqlLock, args: []any{s.lockOf("routes")}}
}

// keepRoutes keeps others from changing the registered groups until the transaction ends. It is
// an advisory lock because that needs no right.
func (s *Store) keepRoutes() step {
	return step{template: sqlKeepRoutes, args: []any{s.lockOf("routes")}}
}

// groupsStep reads the registrations.
func groupsStep(into *storekit.RoutingTable) step {
	return step{template: sqlGroups, row: func(scan func(...any) error) error { return scanGroup(into, scan) }}
}

func scanGroup(table *storekit.RoutingTable, scan func(...any) error) error {
	var found storekit.StoredRegistration
	var include, exclude string
	var expires *time.Time
	if err := scan(&found.Group, &include, &exclude, &found.SeenAt, &expires, &found.Holding); err != nil {
		return err
	}
	found.SeenAt = found.SeenAt.UTC()
	if expires != nil {
		found.ExpiresAt = expires.UTC()
	}
	table.Registrations = append(table.Registrations, found)
	last := &table.Registrations[len(table.Registrations)-1].Topics
	return errors.Join(json.Unmarshal([]byte(include), &last.Include), json.Unmarshal([]byte(exclude), &last.Exclude))
}

// adoptAtOnce is how many records one transaction gives to a group.
const adoptAtOnce = 5000

// RegisterGroup makes the group a reader of the topics. See outmill.Queue. Records that waited
// for a reader are moved 5,000 in a transaction. Ordered claims return no record of a topic
// before all of its records are moved.
//
// A transaction that was open during the first registration may still append a record without a
// group; claims adopt it.
func (s *Store) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	const operation = "register group"
	regs = storekit.WithGroups(regs)
	if err := storekit.CheckRegistrations(regs); err != nil || len(regs) == 0 {
		return s.explain(ctx, operation, errors.Join(err, s.usable(ctx)))
	}
	s.life.CheckAgain()
	stopped, regs := storekit.Stopped(regs)
	if err := s.stopWorkers(ctx, operation, stopped); err != nil || len(regs) == 0 {
		return err
	}
	seen := map[[2]string]bool{}
	topics := unionOf(regs)
	waiting, err := s.unrouted(ctx, operation, topics, seeGroups(regs, seen)...)
	missing := slices.DeleteFunc(slices.Clone(regs), func(reg outmill.Registration) bool { return seen[nameOf(reg)] })
	if err == nil && len(missing) > 0 {
		steps := []step{s.lockRoutes(), {template: sqlLockGroups}}
		for _, reg := range missing {
			steps = append(steps, addGroup(reg)...)
		}
		err = s.durably(ctx, operation, func(ctx context.Context, t *txn) error { return t.finish(ctx, steps...) })
	}
	if err != nil || len(missing) == 0 && len(waiting) == 0 {
		return err
	}
	adopted, err := s.adoptAll(ctx, operation, topics)
	if adopted > 0 {
		s.wake()
	}
	return err
}

// nameOf is a registration's group and selection.
func nameOf(reg outmill.Registration) [2]string { return [2]string{reg.Group, digest(reg.Topics)} }

// seeGroups renews the registrations that exist, and notes them in seen.
func seeGroups(regs []outmill.Registration, seen map[[2]string]bool) []step {
	var groups, selections []string
	var ttls []int64
	var holds []bool
	workers := map[[2]string]outmill.Registration{}
	for _, reg := range regs {
		name := nameOf(reg)
		groups, selections, ttls = append(groups, name[0]), append(selections, name[1]), append(ttls, sqlkit.CeilMicros(reg.TTL))
		holds = append(holds, reg.Hold)
		workers[[2]string{reg.Group, reg.Worker}] = reg
	}
	steps := []step{{template: sqlSeeGroups, args: []any{groups, selections, ttls, holds}, row: func(scan func(...any) error) error {
		var name [2]string
		err := scan(&name[0], &name[1])
		seen[name] = true
		return err
	}}}
	for _, reg := range workers {
		steps = append(steps, seeWorker(reg)...)
	}
	return steps
}

// addGroup adds a registration, unless another process has just added it, as a permanent one or
// not, or ends its holding. It notes the worker in the same transaction, because a worker of a group without a
// registration may be deleted.
func addGroup(reg outmill.Registration) []step {
	who := []any{reg.Group, digest(reg.Topics), sqlkit.CeilMicros(reg.TTL)}
	var steps []step
	if !reg.Hold {
		steps = []step{{template: sqlEndHolding, args: who[:2:2]}}
	}
	steps = append(steps, step{template: sqlSeeGroup, args: who},
		step{template: sqlAddGroup, args: append(who, storekit.OrEmpty(reg.Topics.Include), storekit.OrEmpty(reg.Topics.Exclude), reg.Hold)})
	return append(steps, seeWorker(reg)...)
}

// unionOf selects the topics of all registrations, and maybe others.
func unionOf(regs []outmill.Registration) outmill.Topics {
	if len(regs) == 1 {
		return regs[0].Topics
	}
	var union outmill.Topics
	for _, reg := range regs {
		if len(reg.Topics.Include) == 0 {
			return outmill.Topics{}
		}
		union.Include = append(union.Include, reg.Topics.Include...)
	}
	return union
}

// digest returns a name of a selection.
func digest(topics outmill.Topics) string {
	// A selection always marshals, because it has only strings.
	text, _ := json.Marshal([][]string{storekit.OrEmpty(topics.Include), storekit.OrEmpty(topics.Exclude)})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// adoptAll gives the records of the topics that wait for a group to the first group that
// registered for each topic, and returns their number.
func (s *Store) adoptAll(ctx context.Context, operation string, topics outmill.Topics) (adopted int, err error) {
	for {
		waiting, err := s.unrouted(ctx, operation, topics)
		if err != nil || len(waiting) == 0 {
			return adopted, err
		}
		for topic, first := range waiting {
			n, err := s.adopt(ctx, operation, first, topic)
			if adopted += n; err != nil {
				return adopted, err
			}
		}
	}
}

// unrouted returns the topics with records that wait for a group, and the first registration
// for each, after the steps. Usually there are no such topics. It does not read the
// registrations then, because there may be many.
func (s *Store) unrouted(ctx context.Context, operation string, topics outmill.Topics,
	before ...step) (map[string]storekit.StoredRegistration, error) {
	var unrouted []string
	var table *storekit.RoutingTable
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		table = &storekit.RoutingTable{}
		err := t.run(ctx, append(slices.Clone(before), step{template: sqlUnrouted, row: texts(&unrouted)})...)
		unrouted = slices.DeleteFunc(unrouted, func(topic string) bool { return !topics.Match(topic) })
		switch {
		case err != nil:
			return err
		case len(unrouted) == 0:
			return t.finish(ctx)
		}
		return t.finish(ctx, groupsStep(table))
	})
	if err != nil {
		return nil, err
	}
	return table.FirstOf(unrouted), nil
}

// adopt gives the topic's records to the registration's group until none is left, or the
// registration is gone.
func (s *Store) adopt(ctx context.Context, operation string, to storekit.StoredRegistration, topic string) (adopted int, err error) {
	for {
		var n int
		err := s.writeAll(ctx, operation, step{template: sqlAdopt, args: []any{to.Group, topic, adoptAtOnce, digest(to.Topics)}, count: &n})
		if adopted += n; err != nil || n == 0 {
			return adopted, err
		}
	}
}

// texts collects a column of text.
func texts(into *[]string) func(scan func(...any) error) error {
	*into = nil
	return addTexts(into)
}

// addTexts appends a column of text to the list.
func addTexts(into *[]string) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		*into = append(*into, text)
		return nil
	}
}

// Groups lists the groups. See outmill.Inspector.
func (s *Store) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	var infos []outmill.GroupInfo
	pauses := s.lookAtPauses()
	err := s.write(ctx, "list groups", func(ctx context.Context, t *txn) error {
		var table storekit.RoutingTable
		var workers []storekit.StoredWorker
		var ended []storekit.EndedGroup
		err := t.finish(ctx, groupsStep(&table), pauses.step(),
			step{template: sqlWorkers, row: func(scan func(...any) error) error {
				var w storekit.StoredWorker
				err := scan(&w.Group, &w.Name, &w.SeenAt, &w.Problems)
				w.SeenAt = w.SeenAt.UTC()
				workers = append(workers, w)
				return err
			}},
			step{template: sqlEnded, row: func(scan func(...any) error) error {
				var e storekit.EndedGroup
				err := scan(&e.Group, &e.At)
				e.At = e.At.UTC()
				ended = append(ended, e)
				return err
			}})
		infos = table.Infos(workers, ended)
		return err
	})
	if err != nil {
		return nil, err
	}
	storekit.NamePauses(infos, pauses.list().All())
	return infos, nil
}
