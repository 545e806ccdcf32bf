package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/routing"
)

const (
	sqlGroups = `SELECT grp, include, exclude, seen_at FROM {p:groups} ORDER BY grp, include, exclude`

	sqlSeeGroup = `UPDATE {p:groups} SET seen_at = ?4 WHERE grp = ?1 AND include = ?2 AND exclude = ?3`
	sqlAddGroup = `INSERT INTO {p:groups} (grp, include, exclude, seen_at) VALUES (?1, ?2, ?3, ?4)`

	sqlGroupsChanged = `UPDATE {p:meta} SET generation = generation + 1 WHERE only_row = 1`

	sqlUnroutedTopics = `WITH RECURSIVE
	line (topic) AS (
		SELECT min(topic) FROM {p:records} INDEXED BY {p:line} WHERE grp IS NULL AND stage = 0
		UNION ALL
		SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:line} WHERE grp IS NULL AND stage = 0 AND topic > line.topic)
		FROM line WHERE topic IS NOT NULL),
	later (topic) AS (
		SELECT min(topic) FROM {p:records} INDEXED BY {p:later} WHERE grp IS NULL AND available_at IS NOT NULL
		UNION ALL
		SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:later} WHERE grp IS NULL AND available_at IS NOT NULL AND topic > later.topic)
		FROM later WHERE topic IS NOT NULL),
	settled (topic) AS (
		SELECT min(topic) FROM {p:records} INDEXED BY {p:settled} WHERE grp IS NULL AND stage = 6
		UNION ALL
		SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:settled} WHERE grp IS NULL AND stage = 6 AND topic > settled.topic)
		FROM settled WHERE topic IS NOT NULL)
SELECT topic FROM line WHERE topic IS NOT NULL
UNION SELECT topic FROM later WHERE topic IS NOT NULL
UNION SELECT topic FROM settled WHERE topic IS NOT NULL`

	sqlAdoptLine    = `UPDATE {p:records} INDEXED BY {p:line} SET grp = ?1 WHERE grp IS NULL AND topic = ?2 AND stage = 0`
	sqlAdoptLater   = `UPDATE {p:records} INDEXED BY {p:later} SET grp = ?1 WHERE grp IS NULL AND topic = ?2 AND available_at IS NOT NULL`
	sqlAdoptSettled = `UPDATE {p:records} INDEXED BY {p:settled} SET grp = ?1 WHERE grp IS NULL AND topic = ?2 AND stage = 6`

	sqlDropRegistrations = `DELETE FROM {p:groups} WHERE grp = ?1`
	sqlDropLanes         = `DELETE FROM {p:lanes} WHERE grp = ?1`
	sqlDropLine          = `DELETE FROM {p:records} INDEXED BY {p:line} WHERE grp = ?1 AND stage = 0`
	sqlDropHeld          = `DELETE FROM {p:records} INDEXED BY {p:held} WHERE grp = ?1 AND stage = 1`
	sqlDropExpired       = `DELETE FROM {p:records} INDEXED BY {p:expired} WHERE grp = ?1 AND stage = 5`
	sqlDropLater         = `DELETE FROM {p:records} INDEXED BY {p:later} WHERE grp = ?1 AND available_at IS NOT NULL`
	sqlDropSettled       = `DELETE FROM {p:records} INDEXED BY {p:settled} WHERE grp = ?1 AND stage = 6`
)

// RegisterGroup makes the group a reader of the topics. See outmill.Queue. Records
// that waited for a reader are moved in the same transaction, all of them.
func (s *Store) RegisterGroup(ctx context.Context, reg outmill.Registration) error {
	const operation = "register group"
	if err := reg.Validate(); err != nil {
		return s.explain(ctx, operation, err)
	}
	var adopted int
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		if err := t.register(ctx, reg); err != nil {
			return err
		}
		adopted, err = t.adopt(ctx, reg.Group, reg.Topics)
		return err
	})
	if err == nil && adopted > 0 {
		s.waker.bell.Ring()
	}
	return err
}

func (t *txn) register(ctx context.Context, reg outmill.Registration) error {
	args := []any{reg.Group, textList(reg.Topics.Include), textList(reg.Topics.Exclude), t.now}
	seen, err := t.exec(ctx, sqlSeeGroup, args...)
	if err != nil || seen > 0 {
		return err
	}
	if _, err := t.exec(ctx, sqlAddGroup, args...); err != nil {
		return err
	}
	_, err = t.exec(ctx, sqlGroupsChanged)
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
		n, err := t.execAll(ctx, []string{sqlAdoptLine, sqlAdoptLater, sqlAdoptSettled}, group, topic)
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

// DropGroup removes the group's registration and its records. See
// outmill.Inspector.
func (s *Store) DropGroup(ctx context.Context, group string) (int, error) {
	const operation = "drop group"
	if err := outmill.CheckGroup(group); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	var dropped int
	err := s.writeSteps(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		if err := t.moveSteps(ctx, isDropped, sqlOpenStepsOfGroup, group); err != nil {
			return err
		}
		if _, err := t.execAll(ctx, []string{sqlDropRegistrations, sqlDropLanes}, group); err != nil {
			return err
		}
		if dropped, err = t.execAll(ctx, []string{sqlDropLine, sqlDropHeld, sqlDropExpired, sqlDropLater, sqlDropSettled}, group); err != nil {
			return err
		}
		_, err = t.exec(ctx, sqlGroupsChanged)
		return err
	})
	if err != nil {
		return 0, err
	}
	return dropped, nil
}

// Groups lists the registered groups. See outmill.Inspector.
func (s *Store) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	var table routing.Table
	err := s.read(ctx, "list groups", func(ctx context.Context, t *txn) (err error) {
		table.Registrations, err = t.registrations(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return table.Infos(), nil
}

// registrations come sorted by group.
func (t *txn) registrations(ctx context.Context) ([]routing.Registration, error) {
	return list(ctx, t, func(rows *sql.Rows, r *routing.Registration) error {
		var include, exclude string
		var seen int64
		if err := rows.Scan(&r.Group, &include, &exclude, &seen); err != nil {
			return err
		}
		r.SeenAt = timeOf(seen)
		return errors.Join(patterns(include, &r.Topics.Include), patterns(exclude, &r.Topics.Exclude))
	}, sqlGroups)
}

func patterns(text string, into *[]string) error {
	if text == "[]" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}

// routes reads the registrations, unless those known are of the generation
// that this transaction sees.
func (t *txn) routes(ctx context.Context) (*routing.Table, error) {
	if known := t.s.routes.Load(); known != nil && known.Generation == t.generation {
		return known, nil
	}
	registrations, err := t.registrations(ctx)
	if err != nil {
		return nil, err
	}
	found := &routing.Table{Generation: t.generation, Registrations: registrations}
	t.s.routes.Store(found)
	return found, nil
}
