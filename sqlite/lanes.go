package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/outmill/outmill/storekit"
)

// A lane is the entry of a key that has held records. It names what blocked them at the last
// ordered claim. Every change of a live record's state opens the lane of its key (openLanes),
// without checking whether the key is free now: the next ordered claim checks that.

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

	sqlOpenOverdue = `UPDATE {p:lanes} SET blocked_by = '', until = NULL, paused_by = NULL
WHERE (grp, topic, key) IN (SELECT grp, topic, key FROM {p:lanes} INDEXED BY {p:lanes_until}
	WHERE grp = ?1 AND topic = ?2 AND until <= ?3 ORDER BY until LIMIT ?4)`

	sqlUnhold = `UPDATE {p:records} SET stage = 0 WHERE seq IN (SELECT seq FROM {p:records} INDEXED BY {p:held_key}
	WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND stage = 1 AND seq < ?4 ORDER BY seq LIMIT ?5)`

	sqlHeldOf = `SELECT seq FROM {p:records} INDEXED BY {p:held_key}
WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND stage = 1 AND (expires_at IS NULL OR expires_at > ?4) ORDER BY seq LIMIT ?5`

	sqlLaneHead = `SELECT min(seq) FROM {p:records} INDEXED BY {p:held_key}
WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND stage = 1`

	// sqlHeadTenants returns the tenants of the first held records of the keys ?3, unless the
	// record has expired.
	sqlHeadTenants = `SELECT k.value, r.tenant_id, r.expires_at FROM json_each(?3) AS k
CROSS JOIN {p:records} AS r ON r.seq = (SELECT min(seq) FROM {p:records} INDEXED BY {p:held_key}
	WHERE grp = ?1 AND topic = ?2 AND key = k.value AND stage = 1)
WHERE r.tenant_id IS NOT NULL AND (r.expires_at IS NULL OR r.expires_at > ?4)`

	sqlMoveLane  = `UPDATE {p:lanes} SET blocked_by = ?4, until = ?5, head = ?6, paused_by = ?7 WHERE grp = ?1 AND topic = ?2 AND key = ?3`
	sqlDropLane  = `DELETE FROM {p:lanes} WHERE grp = ?1 AND topic = ?2 AND key = ?3`
	sqlBlockLane = `INSERT INTO {p:lanes} (grp, topic, key, blocked_by, until, head, paused_by)
SELECT ?1, ?2, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?3) WHERE true
ON CONFLICT (grp, topic, key) DO UPDATE
SET blocked_by = excluded.blocked_by, until = excluded.until, paused_by = excluded.paused_by, head = min(head, excluded.head)`

	sqlHold = `UPDATE {p:records} SET stage = 1 WHERE seq IN (SELECT value FROM json_each(?1))`

	sqlOpenLanes = `UPDATE {p:lanes} SET blocked_by = '', until = NULL, paused_by = NULL WHERE (grp, topic, key) IN (
	SELECT grp, topic, key FROM {p:records} WHERE seq IN (SELECT value FROM json_each(?1)) AND key <> '')`
)

// openLanes makes the next claim check the lanes of the records' keys. It is called before the
// records change, because they may be gone afterwards.
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

// lookAtLanes makes up to want held records ready if their lane no longer blocks the claimer,
// and notes the blockers of the other lanes. It returns how many became ready.
func (c *claim) lookAtLanes(ctx context.Context, t *txn, topic string, want int) (back int, err error) {
	if !t.lanes {
		return 0, nil
	}
	if _, err := t.exec(ctx, sqlOpenOverdue, c.req.Group, topic, t.now, max(c.looks, 0)); err != nil {
		return 0, err
	}
	for back < want {
		lanes, err := c.openedLanes(ctx, t, topic, max(want, minPage))
		if err != nil || len(lanes) == 0 {
			return back, err
		}
		keys := make([]string, len(lanes))
		for i, lane := range lanes {
			keys[i] = lane.key
		}
		states, err := t.keyStates(ctx, c, topic, keys)
		if err != nil {
			return back, err
		}
		for _, key := range keys {
			n, err := c.lookAtLane(ctx, t, topic, key, states[key], want-back)
			if back += n; err != nil || back == want {
				return back, err
			}
		}
		if !c.look(len(lanes)) {
			break
		}
	}
	return back, nil
}

// openedLanes returns the lanes to check, those with the oldest head first.
func (c *claim) openedLanes(ctx context.Context, t *txn, topic string, limit int) ([]lane, error) {
	lanes, err := list(ctx, t, func(rows *sql.Rows, l *lane) error { return rows.Scan(&l.key, &l.head) },
		sqlLookAtLanes, c.req.Group, topic, c.owner, storekit.IgnoredBlocker(c.req.KeyPolicy), limit)
	slices.SortFunc(lanes, func(a, b lane) int { return cmp.Compare(a.head, b.head) })
	return lanes, err
}

// lookAtLane returns how many records became ready.
func (c *claim) lookAtLane(ctx context.Context, t *txn, topic, key string, state storekit.KeyState, want int) (int, error) {
	if state.Held == storekit.NoSeq {
		_, err := t.exec(ctx, sqlDropLane, c.req.Group, topic, key)
		return 0, err
	}
	if number := t.pauses.Of(c.req.Group, topic, key, state.HeldTenant); number != 0 {
		pause := storekit.Blocker{By: storekit.BlockedByPause, Pause: number, Until: state.HeldExpiry}
		return 0, c.moveLane(ctx, t, topic, key, pause, state.Held)
	}
	if state.Other != "" {
		return 0, c.moveLane(ctx, t, topic, key, storekit.Blocker{By: state.Other, Until: state.OtherEnd}, state.Held)
	}
	if state.Parks(c.req.KeyPolicy) {
		if err := c.parkHeld(ctx, t, topic, key); err != nil {
			return 0, err
		}
	}
	if before, err := c.readyBefore(ctx, t, topic, key, state.Held); err != nil || before {
		return 0, errors.Join(err, c.moveLane(ctx, t, topic, key, storekit.Blocker{By: storekit.BlockedByTurn}, state.Held))
	}
	barrier := state.Barrier(c.req.KeyPolicy)
	n, err := t.exec(ctx, sqlUnhold, c.req.Group, topic, key, barrier, want)
	if err != nil {
		return 0, err
	}
	head, err := t.laneHead(ctx, c.req.Group, topic, key)
	switch {
	case err != nil:
		return 0, err
	case head == storekit.NoSeq:
		_, err = t.exec(ctx, sqlDropLane, c.req.Group, topic, key)
	case head > barrier:
		err = c.moveLane(ctx, t, topic, key, storekit.Blocker{By: storekit.BlockedByWaiting, Until: state.WaitingEnd}, head)
	default:
		err = c.moveLane(ctx, t, topic, key, storekit.Blocker{By: storekit.BlockedByNothing}, head)
	}
	return n, err
}

// parkHeld parks held records of a parked key, as many as one transaction parks.
func (c *claim) parkHeld(ctx context.Context, t *txn, topic, key string) error {
	seqs, err := t.seqs(ctx, sqlHeldOf, c.req.Group, topic, key, t.now, min(c.atOnce.Park(), max(c.looks, 0)))
	if err != nil || len(seqs) == 0 {
		return err
	}
	c.look(len(seqs))
	c.again = true
	return t.park(ctx, seqs)
}

func (t *txn) laneHead(ctx context.Context, group, topic, key string) (int64, error) {
	var head sql.NullInt64
	_, err := t.one(ctx, []any{&head}, sqlLaneHead, group, topic, key)
	return placeOf(head), err
}

func (c *claim) moveLane(ctx context.Context, t *txn, topic, key string, b storekit.Blocker, head int64) error {
	_, err := t.exec(ctx, sqlMoveLane, c.req.Group, topic, key, b.By, microsOf(b.Until), head, pauseOf(b))
	return err
}

// microsOf converts a time to the form of the tables; nil if there is none.
func microsOf(until *time.Time) any {
	if until == nil {
		return nil
	}
	return until.UnixMicro()
}

// pauseOf returns the number of the pause, or nil if the key is not paused.
func pauseOf(b storekit.Blocker) any {
	if b.Pause == 0 {
		return nil
	}
	return b.Pause
}

// hold moves records from the ready ones to the held ones, and notes the blockers of their
// keys.
func (t *txn) hold(ctx context.Context, group, topic string, seqs []int64, keys map[string]storekit.HeldKey) error {
	if len(seqs) == 0 {
		return nil
	}
	lanes := make([][5]any, 0, len(keys))
	for key, held := range keys {
		lanes = append(lanes, [5]any{key, held.By, microsOf(held.Until), held.Head, pauseOf(held.Blocker)})
	}
	list, err := json.Marshal(lanes)
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, sqlHold, seqList(seqs)); err != nil {
		return err
	}
	t.lanes = true
	_, err = t.exec(ctx, sqlBlockLane, group, topic, string(list))
	return err
}
