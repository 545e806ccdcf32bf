package postgres

import (
	"encoding/json"

	"github.com/outmill/outmill/storekit"
)

// A lane is the entry of a key that has held records. It names what blocked them at the last
// ordered claim. Every end of a lease or a wait opens the lane of its key, without checking
// whether the key is free now: the next ordered claim checks that.
//
// Lanes are hints. Settling does not wait for a claim that is about to note a key's blocker, so
// the note may be outdated when it commits. Hence each lane has a time of its next check: soon
// at first, then less and less often, and at the latest when the lease or the wait ends. A
// claim checks only one page of the lanes whose time has come, whether or not it finds records:
// with 200,000 blocked keys, a check of all lanes takes many claims.

var (
	// sqlLookAtLanes returns the lanes to check, those with the oldest head first.
	sqlLookAtLanes = `SELECT k.key, k.head, ` + stateColumns + ` FROM (
	SELECT key, head, 1 AS nth FROM (
		SELECT * FROM (SELECT key, head FROM {p:lanes} WHERE ` + ofLine + ` AND blocked_by = '' ORDER BY head LIMIT $5::bigint) AS open
		UNION ALL
		SELECT * FROM (SELECT key, head FROM {p:lanes} WHERE ` + ofLine + ` AND blocked_by = $3::text ORDER BY head LIMIT $5::bigint) AS own
		UNION ALL
		SELECT * FROM (SELECT key, head FROM {p:lanes} WHERE ` + ofLine + ` AND blocked_by = $4::text ORDER BY head LIMIT $5::bigint) AS passed
	) AS each ORDER BY head LIMIT $5::bigint) AS k` + stateOfKey + `
ORDER BY k.head`

	// sqlUnhold makes held records ready again: $5 of all keys, and those of each key up to its
	// barrier.
	sqlUnhold = `UPDATE {p:records} SET stage = 0 WHERE ctid = ANY (ARRAY(
	SELECT r.ctid FROM unnest($3::text[], $4::bigint[]) WITH ORDINALITY AS k (key, barrier, turn)
	CROSS JOIN LATERAL (SELECT ctid FROM {p:records}
		WHERE ` + ofKey(`k.key`) + ` AND stage - 1 = 0 AND seq < k.barrier ORDER BY seq LIMIT $5::bigint) AS r
	ORDER BY k.turn LIMIT $5::bigint)) AND stage + 0 = 1`

	// sqlParkHeld parks held records of the keys $3, at most $4 in all. $5 is the reason.
	sqlParkHeld = `WITH gone AS (UPDATE {p:records} SET stage = 7, parked = true, last_error = $5::text WHERE ctid = ANY (ARRAY(
	SELECT r.ctid FROM unnest($3::text[]) WITH ORDINALITY AS k (key, turn)
	CROSS JOIN LATERAL (SELECT ctid FROM {p:records} WHERE ` + ofKey(`k.key`) + ` AND stage - 1 = 0 AND ` + notExpired + `
		ORDER BY seq LIMIT $4::bigint) AS r
	ORDER BY k.turn LIMIT $4::bigint)) AND stage + 0 = 1 RETURNING step),
noted AS MATERIALIZED (` + noteDead + `)
SELECT count(*) FROM gone, (SELECT count(*) FROM noted) AS n`

	// sqlMoveLanes notes the blockers of the keys $3: $4 is an object of key to [blocker, its
	// end, the barrier, the number of a pause]. The lanes are checked again at that end at the
	// latest, but within 100 ms at first, and then after twice the time at each check, up to 6.4
	// s, and 5 minutes for a paused lane, because there may be many of them for long.
	sqlMoveLanes = `UPDATE {p:lanes} AS l SET looks = least(l.looks + 1, 100)::smallint, (head, blocked_by, until, paused_by) = (
	SELECT h.seq, CASE WHEN h.seq < b.barrier THEN '' ELSE b.blocked_by END,
		CASE WHEN h.seq >= b.barrier THEN least(b.until, statement_timestamp() + CASE WHEN b.paused_by IS NOT NULL AND l.looks > 6
			THEN interval '5 minutes' ELSE interval '100 milliseconds' * power(2, least(l.looks, 6)) END) END,
		CASE WHEN h.seq >= b.barrier THEN b.paused_by END
	FROM (SELECT coalesce((SELECT seq FROM {p:records} WHERE ` + ofKey(`l.key`) + ` AND stage - 1 = 0 ORDER BY seq LIMIT 1),
		l.head) AS seq) AS h,
	(SELECT $4::jsonb -> l.key ->> 0 AS blocked_by, nullif($4::jsonb -> l.key ->> 1, '')::timestamptz AS until,
		($4::jsonb -> l.key ->> 2)::bigint AS barrier, nullif($4::jsonb -> l.key ->> 3, '0')::bigint AS paused_by) AS b)
WHERE l.ctid = ANY (ARRAY(SELECT c.ctid FROM unnest($3::text[]) AS k (key)
	CROSS JOIN LATERAL (SELECT ctid FROM {p:lanes} WHERE grp = $1::text AND topic = $2::text AND key = k.key LIMIT 1) AS c))`

	// sqlDropLanesOf drops the lanes that hold no record any more.
	sqlDropLanesOf = `DELETE FROM {p:lanes} WHERE ctid = ANY (ARRAY(
	SELECT l.ctid FROM unnest($3::text[]) AS k (key)
	CROSS JOIN LATERAL (SELECT ctid FROM {p:lanes} WHERE grp = $1::text AND topic = $2::text AND key = k.key LIMIT 1) AS l
	WHERE ` + noneOf(`{p:records} WHERE `+ofKey(`k.key`)+` AND stage - 1 = 0`) + `))`

	// sqlHold also compares the places, because a row of the log whose id was taken gets
	// another id.
	sqlHold = `UPDATE {p:records} SET stage = 1 WHERE id = ANY ($1::text[]::uuid[]) AND seq = ANY ($2::bigint[]) AND stage + 0 = 0`

	sqlBlockLanes = `INSERT INTO {p:lanes} AS l (grp, topic, key, blocked_by, until, head, paused_by)
SELECT $1::text, $2::text, k.key, k.blocked_by,
	CASE WHEN k.blocked_by <> '' THEN least(nullif(k.until, '')::timestamptz, statement_timestamp() + interval '100 milliseconds') END, k.head,
	nullif(k.paused_by, 0)
FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[]) AS k (key, blocked_by, until, head, paused_by) ORDER BY k.key
ON CONFLICT (grp, topic, key) DO UPDATE
SET blocked_by = excluded.blocked_by, until = excluded.until, head = least(l.head, excluded.head), paused_by = excluded.paused_by`

	sqlOpenLanes = `UPDATE {p:lanes} SET blocked_by = '', until = NULL, paused_by = NULL WHERE ctid = ANY (ARRAY(
	SELECT l.ctid FROM (SELECT DISTINCT key FROM unnest($3::text[]) AS u (key)) AS k
	CROSS JOIN LATERAL (SELECT ctid FROM {p:lanes} WHERE grp = $1::text AND topic = $2::text AND key = k.key LIMIT 1) AS l))`
)

// openLanesOf opens the lanes of the records of a WITH query named gone. It skips lanes that
// another transaction has locked: that transaction opens the lane itself, or its note is
// checked again soon.
const openLanesOf = `UPDATE {p:lanes} SET blocked_by = '', until = NULL, paused_by = NULL, looks = 0 WHERE ctid = ANY (ARRAY(
	SELECT l.ctid FROM (SELECT DISTINCT grp, topic, key FROM gone WHERE key <> '') AS k
	CROSS JOIN LATERAL (SELECT ctid FROM {p:lanes} WHERE grp = k.grp AND topic = k.topic AND key = k.key FOR UPDATE SKIP LOCKED) AS l))`

// untilText returns the end of a block, for a statement.
func untilText(b storekit.Blocker) string {
	if b.Until == nil {
		return ""
	}
	return b.Until.UTC().Format(textOfTime)
}

type lane struct {
	key   string
	head  int64
	state storekit.KeyState
	// behind: a ready record is before the held ones, and the claim serves turns.
	behind bool
}

func (l *line) lanesStep(into *[]lane) step {
	*into = nil
	return step{
		template: sqlLookAtLanes,
		args:     []any{l.c.req.Group, l.topic, l.c.req.Owner.String(), storekit.IgnoredBlocker(l.c.req.KeyPolicy), l.pageSize()},
		row: func(scan func(...any) error) error {
			var found lane
			var s scanState
			err := scan(append([]any{&found.key, &found.head}, s.columns(&found.state)...)...)
			s.into(&found.state)
			*into = append(*into, found)
			return err
		},
	}
}

// laneLook is the result of a check of lanes: how many records became ready, and how many were
// parked.
type laneLook struct{ back, parked int }

// lookAt makes held records ready if their lane no longer blocks the claimer, as many as the
// claim wants. It parks those of parked keys, as many as one transaction parks, and notes the
// blockers of the other lanes.
func (l *line) lookAt(lanes []lane, done *laneLook) ([]step, error) {
	var keys, parking []string
	var barriers []int64
	blocks := map[string][4]any{}
	for _, lane := range lanes {
		b, barrier := l.blockerOf(lane)
		if b.Pause == 0 && lane.state.Parks(l.c.req.KeyPolicy) {
			parking = append(parking, lane.key)
		}
		keys, barriers = append(keys, lane.key), append(barriers, barrier)
		blocks[lane.key] = [4]any{b.By, untilText(b), barrier, b.Pause}
	}
	most := l.Want
	if l.Rooms != nil {
		// Those without room stay ready, so that a claim of few would be repeated too often.
		most = max(most, minLooks)
	}
	notes, err := json.Marshal(blocks)
	group := l.c.req.Group
	var steps []step
	if len(parking) > 0 {
		l.hasParked = true
		steps = append(steps, step{
			template: sqlParkHeld, args: []any{group, l.topic, parking, l.c.s.atOnce.Park(), storekit.ParkedError},
			row: func(scan func(...any) error) error { return scan(&done.parked) },
		})
	}
	return append(steps, []step{
		{template: sqlUnhold, args: []any{group, l.topic, keys, barriers, most}, count: &done.back},
		{template: sqlDropLanesOf, args: []any{group, l.topic, keys}},
		{template: sqlMoveLanes, args: []any{group, l.topic, keys, string(notes)}},
	}...), err
}

// blockerOf returns the reason why the lane is blocked, and the first place that it blocks. A
// pause of the key, or of the tenant of its first held record, blocks all of it.
func (l *line) blockerOf(lane lane) (storekit.Blocker, int64) {
	pause := storekit.Blocker{By: storekit.BlockedByPause, Pause: l.Pauses.Key(l.c.req.Group, l.topic, lane.key)}
	if pause.Pause == 0 {
		pause.Pause, pause.Until = l.Pauses.Tenant(l.c.req.Group, l.topic, lane.state.HeldTenant), lane.state.HeldExpiry
	}
	if pause.Pause != 0 {
		return pause, 0
	}
	if lane.behind && lane.state.Other == "" {
		return storekit.Blocker{By: storekit.BlockedByTurn}, 0
	}
	return lane.state.Blocker(l.c.req.KeyPolicy)
}

// hold moves records from the ready ones to the held ones.
func (l *line) hold() []step {
	if len(l.Holding) == 0 {
		return nil
	}
	var keys, by, until []string
	var heads, pauses []int64
	for key, lane := range l.HeldKeys {
		keys, by, until = append(keys, key), append(by, lane.By), append(until, untilText(lane.Blocker))
		heads, pauses = append(heads, lane.Head), append(pauses, lane.Pause)
	}
	return []step{
		{template: sqlHold, args: []any{idsOf(l.Holding), placesOf(l.Holding)}},
		{template: sqlBlockLanes, args: []any{l.c.req.Group, l.topic, keys, by, until, heads, pauses}},
	}
}
