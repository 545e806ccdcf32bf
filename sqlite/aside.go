package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Pauses of keys and tenants are compared with the records that a claim meets. So that each
// claim need not skip the same paused records again, a claim moves them out of its way, each
// with the number of the pause:
//
//	ready, waiting ──claim meets a paused record──► held (its key is blocked by the pause)   with OrderKey, if the record has a key
//	                                          └───► aside                                    without an order, or without a key
//	held, aside ──a claim sees that the pause with this number is gone──► held, with its key open; or due as before
//
// Only claims move records, each a limited number in one transaction. Pause and Resume write one
// row, so there is nothing that a crash could leave half done: as long as the pause exists,
// claims set more records aside, and afterwards they bring them back. Numbers of pauses are
// never used again, so a record that was set aside for an earlier pause of the same scope comes
// back, and is set aside again for the new one.
//
// The order of a key holds because its records are held: an ordered claim holds later records of
// a key as long as the key has held ones. Records that are aside have no order. If the readers of
// a group have changed from no order to order, an ordered claim first brings back what has an
// order now: records with a key, or, for whole topics, all of them.

const (
	// sqlSetAside moves paused records aside. ?1 is a list of [seq, number of the pause]. An
	// ended lease counts as an expiry.
	sqlSetAside = `WITH a AS MATERIALIZED (SELECT value ->> 0 AS aside, value ->> 1 AS pause FROM json_each(?1))
UPDATE {p:records} SET status = 'pending', stage = -1, paused_by = a.pause, available_at = NULL, owner = '',
	attempts = attempts + (stage = 4 AND expiries >= 2), expiries = expiries + (stage = 4)
FROM a WHERE seq = a.aside`

	sqlBringBack = `UPDATE {p:records} SET paused_by = NULL, ` + dueAsBefore + ` WHERE seq IN (SELECT seq FROM {p:records} INDEXED BY {p:aside}
	WHERE grp = ?1 AND topic = ?2 AND stage = -1 AND paused_by = ?3 ORDER BY seq LIMIT ?4)`

	sqlBringBackKeyed = `UPDATE {p:records} SET paused_by = NULL, ` + dueAsBefore + ` WHERE seq IN (
	SELECT seq FROM {p:records} INDEXED BY {p:aside_keyed}
	WHERE grp = ?1 AND topic = ?2 AND stage = -1 AND key <> '' ORDER BY seq LIMIT ?3)`

	sqlBringBackAll = `UPDATE {p:records} SET paused_by = NULL, ` + dueAsBefore + ` WHERE seq IN (
	SELECT seq FROM {p:records} INDEXED BY {p:aside}
	WHERE grp = ?1 AND topic = ?2 AND stage = -1 LIMIT ?3)`

	sqlOpenResumed = `UPDATE {p:lanes} SET blocked_by = '', until = NULL, paused_by = NULL
WHERE (grp, topic, key) IN (SELECT grp, topic, key FROM {p:lanes} INDEXED BY {p:lanes_paused}
	WHERE grp = ?1 AND topic = ?2 AND paused_by = ?3 LIMIT ?4)`
)

var (
	// sqlAsides finds the topics and pauses of the group's records that are aside, and
	// sqlPausedLanes those of the keys that a pause blocks, by two index searches for each. A
	// comparison of (topic, paused_by) would read all entries that are equal to the last ones.
	sqlAsides      = pausesIn(`{p:records} INDEXED BY {p:aside} WHERE grp = ?1 AND stage = -1`)
	sqlPausedLanes = pausesIn(`{p:lanes} INDEXED BY {p:lanes_paused} WHERE grp = ?1 AND paused_by IS NOT NULL`)
)

func pausesIn(rows string) string {
	return `WITH RECURSIVE
	topics (topic) AS (
		SELECT min(topic) FROM ` + rows + `
		UNION ALL
		SELECT (SELECT min(topic) FROM ` + rows + ` AND topic > topics.topic) FROM topics WHERE topic IS NOT NULL),
	pairs (topic, number) AS (
		SELECT t.topic, (SELECT min(paused_by) FROM ` + rows + ` AND topic = t.topic) FROM topics AS t WHERE t.topic IS NOT NULL
		UNION ALL
		SELECT p.topic, (SELECT min(paused_by) FROM ` + rows + ` AND topic = p.topic AND paused_by > p.number)
		FROM pairs AS p WHERE p.number IS NOT NULL)
SELECT topic, number FROM pairs WHERE number IS NOT NULL`
}

// resumed has, for topics of a group, the numbers of pauses that are gone, and that still keep
// records aside or block keys.
type resumed struct {
	aside, lanes map[string][]int64
}

func (t *txn) resumed(ctx context.Context, group string) (found resumed, err error) {
	if t.asides {
		if found.aside, err = t.goneOf(ctx, sqlAsides, group); err != nil {
			return found, err
		}
	}
	if t.pausedLanes {
		found.lanes, err = t.goneOf(ctx, sqlPausedLanes, group)
	}
	return found, err
}

func (t *txn) goneOf(ctx context.Context, template, group string) (map[string][]int64, error) {
	gone := map[string][]int64{}
	_, err := list(ctx, t, func(rows *sql.Rows, _ *struct{}) error {
		var topic string
		var number int64
		err := rows.Scan(&topic, &number)
		if !t.pauses.Has(number) {
			gone[topic] = append(gone[topic], number)
		}
		return err
	}, template, group)
	return gone, err
}

// topics returns the topics in which something comes back.
func (r resumed) topics() (list []string) {
	for topic := range r.aside {
		list = append(list, topic)
	}
	for topic := range r.lanes {
		list = append(list, topic)
	}
	return list
}

// bringBack brings back what claims of the topic set aside for pauses that are gone. It reports
// false if records with an order are left, so that this transaction must not return later ones.
func (c *claim) bringBack(ctx context.Context, t *txn, topic string) (served bool, err error) {
	if served, err := c.bringInOrder(ctx, t, topic); err != nil || !served {
		return served, err
	}
	for _, number := range c.resumed.aside[topic] {
		n, err := t.exec(ctx, sqlBringBack, c.req.Group, topic, number, c.returns)
		if err != nil {
			return false, err
		}
		c.returns -= n
	}
	for _, number := range c.resumed.lanes[topic] {
		n, err := t.exec(ctx, sqlOpenResumed, c.req.Group, topic, number, c.returns)
		if err != nil {
			return false, err
		}
		c.returns -= n
	}
	c.again = c.again || c.returns == 0
	return true, nil
}

// bringInOrder brings back records that are aside and have a place in the order of the claim. It
// reports whether none are left.
func (c *claim) bringInOrder(ctx context.Context, t *txn, topic string) (all bool, err error) {
	if !t.asides || c.req.Order == outmill.OrderNone {
		return true, nil
	}
	template := sqlBringBackKeyed
	if c.req.Order == outmill.OrderTopic {
		template = sqlBringBackAll
	}
	n, err := t.exec(ctx, template, c.req.Group, topic, c.returns)
	all = n < c.returns
	c.returns -= n
	c.again = c.again || !all
	return all, err
}

// paused is a record to set aside, and the number of its pause.
type paused struct{ seq, number int64 }

func (t *txn) setAside(ctx context.Context, list []paused) error {
	if len(list) == 0 {
		return nil
	}
	seqs, pairs := make([]int64, len(list)), make([][2]int64, len(list))
	for i, p := range list {
		seqs[i], pairs[i] = p.seq, [2]int64{p.seq, p.number}
	}
	// The records may be the last held ones of their keys.
	if err := t.openLanes(ctx, seqs); err != nil {
		return err
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, sqlSetAside, string(text))
	return err
}

func pausedOf(list []storekit.Candidate) []paused {
	all := make([]paused, len(list))
	for i, r := range list {
		all[i] = paused{r.Seq, r.Pause}
	}
	return all
}

// served leaves out the topics that are paused, and adds those in which something comes back.
func (t *txn) served(ctx context.Context, group string, topics []string) ([]string, error) {
	back, err := t.resumed(ctx, group)
	if err != nil {
		return nil, err
	}
	topics = append(topics, back.topics()...)
	slices.Sort(topics)
	topics = slices.Compact(topics)
	return slices.DeleteFunc(topics, func(topic string) bool { return t.pauses.Topic(group, topic) }), nil
}
