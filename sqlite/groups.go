package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlGroups = `SELECT grp, include, exclude, seen_at, expires_at, holding FROM {p:groups} ORDER BY grp, include, exclude`

	// sqlSeeGroup renews a registration. A permanent one stays permanent.
	sqlSeeGroup = `UPDATE {p:groups} SET seen_at = ?4, expires_at = iif(expires_at IS NULL, NULL, ?5), holding = holding AND ?6
		WHERE grp = ?1 AND include = ?2 AND exclude = ?3`
	sqlAddGroup = `INSERT INTO {p:groups} (grp, include, exclude, seen_at, expires_at, holding) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`
	sqlHolds    = `SELECT holding FROM {p:groups} WHERE grp = ?1 AND include = ?2 AND exclude = ?3`

	sqlStopWorker = `UPDATE {p:workers} SET seen_at = ?3, problems = ?4 WHERE grp = ?1 AND name = ?2`
	sqlSeeWorker  = `INSERT INTO {p:workers} (grp, name, seen_at, problems) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, name) DO UPDATE SET seen_at = excluded.seen_at, problems = excluded.problems`
	sqlOldWorkers = `DELETE FROM {p:workers} WHERE grp = ?1 AND (seen_at < ?2
	OR name IN (SELECT name FROM {p:workers} WHERE grp = ?1 ORDER BY seen_at DESC, name LIMIT -1 OFFSET ?3))`
	sqlWorkers = `SELECT grp, name, seen_at, coalesce(problems, '') FROM {p:workers}`

	sqlGroupsChanged = `UPDATE {p:meta} SET generation = generation + 1 WHERE only_row = 1`

	sqlAdoptLine  = `UPDATE {p:records} INDEXED BY {p:line} SET grp = ?1 WHERE grp IS NULL AND topic = ?2 AND stage = 0 AND turn IS NULL`
	sqlAdoptTurns = `UPDATE {p:records} INDEXED BY {p:turn_line} SET grp = ?1
	WHERE grp IS NULL AND topic = ?2 AND stage = 0 AND turn IS NOT NULL`
	sqlAdoptLater   = `UPDATE {p:records} INDEXED BY {p:later} SET grp = ?1 WHERE grp IS NULL AND topic = ?2 AND available_at IS NOT NULL`
	sqlAdoptSettled = `UPDATE {p:records} INDEXED BY {p:settled} SET grp = ?1 WHERE grp IS NULL AND topic = ?2 AND stage = 6`
)

var (
	inLine    = part{"line", "stage = 0 AND turn IS NULL"}
	inTurns   = part{"turn_line", "stage = 0 AND turn IS NOT NULL"}
	isHeld    = part{"held", "stage = 1"}
	later     = part{"later", "available_at IS NOT NULL"}
	expired   = part{"expired", "stage = 5"}
	isAside   = part{"aside", "stage = -1"}
	isSettled = part{"settled", "stage = 6"}

	sqlUnroutedTopics    = leaps("grp IS NULL", inLine, inTurns, later, isSettled)
	sqlUndeliveredTopics = leaps("grp = ?1", inLine, inTurns, isHeld, later, expired, isAside)
)

// part is a part of the records that has an index.
type part struct{ index, condition string }

func (p part) of(group string) string {
	return `FROM {p:records} INDEXED BY {p:` + p.index + `} WHERE ` + group + ` AND ` + p.condition
}

// leaps selects the topics of these parts of a group's records, by one index search for each
// topic.
func leaps(group string, parts ...part) string {
	walks, topics := make([]string, len(parts)), make([]string, len(parts))
	for i, p := range parts {
		walks[i] = p.index + ` (topic) AS (
		SELECT min(topic) ` + p.of(group) + `
		UNION ALL
		SELECT (SELECT min(topic) ` + p.of(group) + ` AND topic > ` + p.index + `.topic)
		FROM ` + p.index + ` WHERE topic IS NOT NULL)`
		topics[i] = `SELECT topic FROM ` + p.index + ` WHERE topic IS NOT NULL`
	}
	return `WITH RECURSIVE
	` + strings.Join(walks, ",\n	") + `
` + strings.Join(topics, "\nUNION ")
}

// RegisterGroup makes the group a reader of the topics. See outmill.Queue. Records
// that waited for a reader are moved in the same transaction, all of them.
func (s *Store) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	const operation = "register group"
	regs = storekit.WithGroups(regs)
	if err := storekit.CheckRegistrations(regs); err != nil || len(regs) == 0 {
		return s.explain(ctx, operation, errors.Join(err, s.usable(ctx)))
	}
	var adopted int
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		adopted = 0
		for _, reg := range regs {
			holds, err := t.register(ctx, reg)
			if err != nil {
				return err
			}
			if holds {
				continue
			}
			n, err := t.adopt(ctx, reg.Group, reg.Topics)
			if adopted += n; err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && adopted > 0 {
		s.waker.notifier.Notify()
	}
	return err
}

// register reports whether the registration holds.
func (t *txn) register(ctx context.Context, reg outmill.Registration) (holds bool, err error) {
	if reg.Stopped {
		_, err := t.exec(ctx, sqlStopWorker, reg.Group, reg.Worker, t.now, storekit.EncodeProblems(reg))
		return true, err
	}
	if err := t.seeWorker(ctx, reg); err != nil {
		return false, err
	}
	args := []any{reg.Group, textList(reg.Topics.Include), textList(reg.Topics.Exclude), t.now, nil, reg.Hold}
	if reg.TTL > 0 {
		args[4] = t.after(reg.TTL)
	}
	seen, err := t.exec(ctx, sqlSeeGroup, args...)
	if err != nil {
		return false, err
	}
	if seen > 0 && !reg.Hold {
		return false, nil
	}
	if seen > 0 {
		found, err := list(ctx, t, func(rows *sql.Rows, holding *bool) error { return rows.Scan(holding) }, sqlHolds, args[:3]...)
		return slices.Contains(found, true), err
	}
	if _, err := t.exec(ctx, sqlAddGroup, args...); err != nil {
		return false, err
	}
	_, err = t.exec(ctx, sqlGroupsChanged)
	return reg.Hold, err
}

// seeWorker notes the worker, if it has a name, and deletes workers that were not seen for
// long.
func (t *txn) seeWorker(ctx context.Context, reg outmill.Registration) error {
	if reg.Worker != "" {
		problems := sqlkit.OrNull(storekit.EncodeProblems(reg))
		if _, err := t.exec(ctx, sqlSeeWorker, reg.Group, reg.Worker, t.now, problems); err != nil {
			return err
		}
	}
	_, err := t.exec(ctx, sqlOldWorkers, reg.Group, t.now-storekit.KeepWorkersFor.Microseconds(), storekit.MaxWorkers)
	return err
}

// adopt gives the group the records of its topics that waited for a reader.
func (t *txn) adopt(ctx context.Context, group string, topics outmill.Topics) (int, error) {
	unrouted, err := t.texts(ctx, sqlUnroutedTopics)
	if err != nil {
		return 0, err
	}
	var adopted int
	for _, topic := range unrouted {
		if !topics.Match(topic) {
			continue
		}
		n, err := t.execAll(ctx, []string{sqlAdoptLine, sqlAdoptTurns, sqlAdoptLater, sqlAdoptSettled}, group, topic)
		if err != nil {
			return 0, err
		}
		adopted += n
	}
	return adopted, nil
}

// execAll runs statements that take the same arguments, and adds up the rows
// that they changed.
func (t *txn) execAll(ctx context.Context, templates []string, args ...any) (int, error) {
	var changed int
	for _, template := range templates {
		n, err := t.exec(ctx, template, args...)
		if err != nil {
			return 0, err
		}
		changed += n
	}
	return changed, nil
}

// Groups lists the groups. See outmill.Inspector.
func (s *Store) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	var infos []outmill.GroupInfo
	err := s.read(ctx, "list groups", func(ctx context.Context, t *txn) (err error) {
		infos, err = t.infos(ctx)
		storekit.NamePauses(infos, t.pauses.All())
		return err
	})
	return infos, err
}

func (t *txn) infos(ctx context.Context) ([]outmill.GroupInfo, error) {
	registrations, err := t.registrations(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := list(ctx, t, func(rows *sql.Rows, w *storekit.StoredWorker) error {
		var seen int64
		err := rows.Scan(&w.Group, &w.Name, &seen, &w.Problems)
		w.SeenAt = timeOf(seen)
		return err
	}, sqlWorkers)
	if err != nil {
		return nil, err
	}
	ended, err := list(ctx, t, func(rows *sql.Rows, e *storekit.EndedGroup) error {
		var at int64
		err := rows.Scan(&e.Group, &at)
		e.At = timeOf(at)
		return err
	}, sqlEnded)
	table := storekit.RoutingTable{Registrations: registrations}
	return table.Infos(workers, ended), err
}

// registrations returns the registrations, sorted by group.
func (t *txn) registrations(ctx context.Context) ([]storekit.StoredRegistration, error) {
	return list(ctx, t, func(rows *sql.Rows, r *storekit.StoredRegistration) error {
		var include, exclude string
		var seen int64
		var expires sql.NullInt64
		if err := rows.Scan(&r.Group, &include, &exclude, &seen, &expires, &r.Holding); err != nil {
			return err
		}
		r.SeenAt, r.ExpiresAt = timeOf(seen), nullTime(expires)
		return errors.Join(patterns(include, &r.Topics.Include), patterns(exclude, &r.Topics.Exclude))
	}, sqlGroups)
}

func patterns(text string, into *[]string) error {
	if text == "[]" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}

// routes reads the registrations, unless the known ones are of the generation that this
// transaction sees.
func (t *txn) routes(ctx context.Context) (*storekit.RoutingTable, error) {
	if known := t.s.routes.Load(); known != nil && known.Generation == t.generation {
		return known, nil
	}
	registrations, err := t.registrations(ctx)
	if err != nil {
		return nil, err
	}
	found := &storekit.RoutingTable{Generation: t.generation, Registrations: registrations}
	t.s.routes.Store(found)
	return found, nil
}
