package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/outmill/outmill"
)

// A lane stands for a key that has held records, and says what blocked them
// when an ordered claim looked last. Whatever changes the state of a live
// record opens the lane of its key (openLanes), without thinking about whether
// that can have made a difference: the next ordered claim looks and knows.

const (
	// blockedByNothing: look at the lane.
	blockedByNothing = ""
	// blockedByWaiting: a record of the key waits for its retry. Other values are
	// the owners of leases.
	blockedByWaiting = "waiting"
	// blockedByNobody is in no lane.
	blockedByNobody = "-"
)

const (
	sqlLookAtLanes = `
SELECT * FROM (SELECT key, head FROM {p:lanes} INDEXED BY {p:lanes_blocked}
	WHERE grp = ?1 AND topic = ?2 AND blocked_by = '' ORDER BY head LIMIT ?5)
UNION ALL
SELECT * FROM (SELECT key, head FROM {p:lanes} INDEXED BY {p:lanes_blocked}
	WHERE grp = ?1 AND topic = ?2 AND blocked_by = ?3 ORDER BY head LIMIT ?5)
UNION ALL
SELECT * FROM (SELECT key, head FROM {p:lanes} INDEXED BY {p:lanes_blocked}
	WHERE grp = ?1 AND topic = ?2 AND blocked_by = ?4 ORDER BY head LIMIT ?5)`

	sqlUnhold = `UPDATE {p:records} SET stage = 0 WHERE seq IN (SELECT seq FROM {p:records} INDEXED BY {p:held_key}
	WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND stage = 1 AND seq < ?4 ORDER BY seq LIMIT ?5)`

	sqlLaneHead = `SELECT min(seq) FROM {p:records} INDEXED BY {p:held_key}
WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND stage = 1`

	sqlMoveLane  = `UPDATE {p:lanes} SET blocked_by = ?4, head = ?5 WHERE grp = ?1 AND topic = ?2 AND key = ?3`
	sqlDropLane  = `DELETE FROM {p:lanes} WHERE grp = ?1 AND topic = ?2 AND key = ?3`
	sqlBlockLane = `INSERT INTO {p:lanes} (grp, topic, key, blocked_by, head)
SELECT ?1, ?2, value ->> 0, value ->> 1, value ->> 2 FROM json_each(?3) WHERE true
ON CONFLICT (grp, topic, key) DO UPDATE SET blocked_by = excluded.blocked_by, head = min(head, excluded.head)`

	sqlHold = `UPDATE {p:records} SET stage = 1 WHERE seq IN (SELECT value FROM json_each(?1))`

	sqlOpenLanes = `UPDATE {p:lanes} SET blocked_by = '' WHERE (grp, topic, key) IN (
	SELECT grp, topic, key FROM {p:records} WHERE seq IN (SELECT value FROM json_each(?1)) AND key <> '')`
)

// passedOver is the mark of lanes that the policy does not stop at.
func passedOver(policy outmill.KeyPolicy) string {
	if policy == outmill.Skip {
		return blockedByWaiting
	}
	return blockedByNobody
}

// openLanes has the lanes of the records' keys looked at again. It is called
// before the records change, as they may be gone afterwards.
func (t *txn) openLanes(ctx context.Context, seqs []int64) error {
	if !t.lanes || len(seqs) == 0 {
		return nil
	}
	_, err := t.exec(ctx, sqlOpenLanes, seqList(seqs))
	return err
}

type lane struct {
	key  string
	head int64
}

// lookAtLanes puts up to want held records back in line, of lanes that are no
// longer blocked for the claimer, and notes what blocks the others.
func (c *claim) lookAtLanes(ctx context.Context, t *txn, topic string, want int) error {
	for t.lanes && want > 0 {
		lanes, err := c.openedLanes(ctx, t, topic, max(want, minPage))
		if err != nil || len(lanes) == 0 {
			return err
		}
		keys := make([]string, len(lanes))
		for i, lane := range lanes {
			keys[i] = lane.key
		}
		states, err := t.keyStates(ctx, c.req.Group, topic, keys, c.owner)
		if err != nil {
			return err
		}
		for _, lane := range lanes {
			n, err := c.lookAtLane(ctx, t, topic, lane, states[lane.key], want)
			if err != nil {
				return err
			}
			if want -= n; want == 0 {
				return nil
			}
		}
		if !c.look(len(lanes)) {
			return nil
		}
	}
	return nil
}

// openedLanes returns lanes to look at, those with the oldest head first.
func (c *claim) openedLanes(ctx context.Context, t *txn, topic string, limit int) ([]lane, error) {
	rows, err := t.query(ctx, sqlLookAtLanes, c.req.Group, topic, c.owner, passedOver(c.req.KeyPolicy), limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var lanes []lane
	for rows.Next() {
		var l lane
		if err := rows.Scan(&l.key, &l.head); err != nil {
			return nil, err
		}
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, func(a, b lane) int { return cmp.Compare(a.head, b.head) })
	return lanes, rows.Err()
}

// lookAtLane returns how many records it put back in line.
func (c *claim) lookAtLane(ctx context.Context, t *txn, topic string, l lane, state lineState, want int) (int, error) {
	if state.held == nowhere {
		_, err := t.exec(ctx, sqlDropLane, c.req.Group, topic, l.key)
		return 0, err
	}
	if state.other != "" {
		return 0, c.moveLane(ctx, t, topic, l.key, state.other, state.held)
	}
	barrier := state.barrier(c.req.KeyPolicy)
	n, err := t.exec(ctx, sqlUnhold, c.req.Group, topic, l.key, barrier, want)
	if err != nil {
		return 0, err
	}
	rows, err := t.query(ctx, sqlLaneHead, c.req.Group, topic, l.key)
	if err != nil {
		return 0, err
	}
	var head sql.NullInt64
	if _, err := scanOne(rows, &head); err != nil {
		return 0, err
	}
	switch {
	case !head.Valid:
		_, err = t.exec(ctx, sqlDropLane, c.req.Group, topic, l.key)
	case head.Int64 > barrier:
		err = c.moveLane(ctx, t, topic, l.key, blockedByWaiting, head.Int64)
	default:
		err = c.moveLane(ctx, t, topic, l.key, blockedByNothing, head.Int64)
	}
	return n, err
}

func (c *claim) moveLane(ctx context.Context, t *txn, topic, key, blockedBy string, head int64) error {
	_, err := t.exec(ctx, sqlMoveLane, c.req.Group, topic, key, blockedBy, head)
	return err
}

// holds are records to hold, and the lanes of their keys.
type holds struct {
	seqs  []int64
	lanes [][3]any
}

func (h *holds) add(seq int64, key, blockedBy string) {
	h.seqs = append(h.seqs, seq)
	h.lanes = append(h.lanes, [3]any{key, blockedBy, seq})
}

// hold takes records out of the line.
func (t *txn) hold(ctx context.Context, group, topic string, h holds) error {
	if len(h.seqs) == 0 {
		return nil
	}
	list, err := json.Marshal(h.lanes)
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, sqlHold, seqList(h.seqs)); err != nil {
		return err
	}
	t.lanes = true
	_, err = t.exec(ctx, sqlBlockLane, group, topic, string(list))
	return err
}
