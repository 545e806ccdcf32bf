package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// A ready record of a topic of Config.FairTopics has a turn, which stands for its tenant. A claim
// finds the tenants by one index search each, beginning with the one whose turn it is, and reads
// a share of each. So it costs as much with a million records of one tenant as with ten.
//
//	appended by a store with the setting ──────────────────────────────► ready, with a turn
//	ready, without a turn ──claim by a store with the setting, in steps─► ready, with a turn
//
// Records of one key may belong to several tenants, so a claim in the order of the keys meets
// them out of order. It holds a record if a ready one is before it in its key and has not been
// claimed (turn_key). It returns no record with a key that is behind one without a turn, or that
// became due behind one that is due, not ready yet, and does not block its key (firstNotAdmitted). All
// of that is read in one snapshot, together with the records.
//
// A store without the setting reads the records with a turn and those without in the order of
// the appends.

// afterTurns is behind all turns, because each begins with a point.
const afterTurns = "/"

const (
	// sqlGiveTurns gives a turn to $3 of the first records without one.
	sqlGiveTurns = `UPDATE {p:records} SET turn = '.' || coalesce(tenant_id, '') WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 0 AND num_nulls(turn) = 1
	ORDER BY seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED))`

	// sqlUnholdAny makes held records ready for a claim without an order.
	sqlUnholdAny = `UPDATE {p:records} SET stage = 0 WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 1
	ORDER BY seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED))`

	ofTurn = `grp = $1::text AND topic = $2::text AND stage * 2 = 0 AND turn IS NOT NULL`
)

var (
	// sqlTurnsFrom finds the first $4 turns from $3 to $5, and then those up to $6.
	sqlTurnsFrom = `SELECT turn, wrapped FROM (
	(` + leapTurns(`$3::text`, `$5::text`, `false`) + `)
	UNION ALL (` + leapTurns(`''`, `$6::text`, `true`) + `)) AS each LIMIT $4::bigint`

	// sqlTurnPage reads $6 records of each of the turns $4, behind the last one of each that was
	// read ($5), with the state of each key at its first record, and the ready record before each
	// one in its key. It also returns the first record without a turn, and firstNotAdmitted.
	sqlTurnPage = `WITH page AS MATERIALIZED (` + turnPage + `), late AS MATERIALIZED (` + firstNotAdmitted + `),
k AS MATERIALIZED (SELECT *, row_number() OVER (PARTITION BY key ORDER BY seq) AS nth FROM page)
SELECT k.id::text, k.seq, k.key, k.expired, k.expiries, k.size, k.due, k.tenant_id, k.expires_at, k.nth = 1, ` + stateColumns + `,
	coalesce(CASE WHEN k.key <> '' THEN (SELECT seq FROM {p:records} WHERE ` + ofTurnKey(`k.key`) + ` AND seq < k.seq
		ORDER BY seq DESC LIMIT 1) END, 0),
	coalesce((SELECT seq FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 0 AND num_nulls(turn) = 1
		ORDER BY seq LIMIT 1), 0),
	(SELECT available_at FROM late), coalesce((SELECT seq FROM late), 0)
FROM k` + stateOfKey + `
WHERE ` + allRouted + ` AND ` + recordsOnly + `
ORDER BY k.seq`

	// sqlTurnPageAny is the same for a claim without an order.
	sqlTurnPageAny = `WITH page AS MATERIALIZED (` + turnPage + `)
SELECT id::text, seq, key, expired, expiries, size, due, tenant_id, expires_at FROM page WHERE ` + recordsOnly + ` AND $3::text IS NOT NULL
ORDER BY seq`

	turnPage = `SELECT r.* FROM unnest($4::text[], $5::bigint[]) AS t (turn, behind)
	CROSS JOIN LATERAL (SELECT ` + lineColumns + ` FROM {p:records}
		WHERE ` + ofTurn + ` AND turn = t.turn AND seq > t.behind ORDER BY seq LIMIT $6::bigint) AS r`

	// sqlBehindReady returns the keys $3 of which a ready record is before the place $4.
	sqlBehindReady = `SELECT k.key FROM unnest($3::text[], $4::bigint[]) AS k (key, place)
WHERE ` + anyOf(`{p:records} WHERE `+ofTurnKey(`k.key`)+` AND seq < k.place`)
)

// leapTurns selects the turns of the topic from one place to another, by one index search each.
func leapTurns(from, to, wrapped string) string {
	next := `SELECT turn FROM {p:records} WHERE ` + ofTurn + ` AND turn < ` + to
	return `WITH RECURSIVE t AS (
		(` + next + ` AND turn >= ` + from + ` ORDER BY turn, seq LIMIT 1)
		UNION ALL SELECT (` + next + ` AND turn > t.turn ORDER BY turn, seq LIMIT 1) FROM t WHERE t.turn IS NOT NULL)
	SELECT turn, ` + wrapped + ` AS wrapped FROM t WHERE turn IS NOT NULL`
}

// ofTurnKey is true for the ready records of the group $1, the topic $2 and a key that have a
// turn.
func ofTurnKey(key string) string {
	return `hashtextextended(key, hashtextextended(topic, hashtextextended(grp, 0)))
		= hashtextextended(` + key + `, hashtextextended($2::text, hashtextextended($1::text, 0)))
		AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM $2::text AND key IS NOT DISTINCT FROM ` + key + `
		AND stage * 3 = 0 AND turn IS NOT NULL AND key <> ''`
}

// firstNotAdmitted selects the record that has been due longest of those that are not ready yet and do
// not block their keys: delayed ones; if $7, ended leases, because those of the claim's own owner do
// not; and if $8, retries. A claim that could make all of them ready ignores the last two kinds,
// because another transaction may keep such a record locked for long.
var firstNotAdmitted = `SELECT available_at, seq FROM (
	` + firstDue(`3`) + ` UNION ALL ` + firstDue(`4 AND `+notExpired+` AND $7::boolean`) + ` UNION ALL ` + firstDue(`2 AND $8::boolean`) + `
	) AS first ORDER BY available_at, seq LIMIT 1`

func firstDue(stage string) string {
	return `(SELECT available_at, seq FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = ` + stage + `
		AND available_at <= statement_timestamp() ORDER BY available_at, seq LIMIT 1)`
}

// ServesTurns reports whether Config.FairTopics names the topic. See storekit.TenantTurns.
func (s *Store) ServesTurns(topic string) bool { return s.fair.ServesTurns(topic) }

// takeFair takes records of one topic, in turn if the setting names it.
func (c *claim) takeFair(ctx context.Context, topic string, want int) error {
	switch {
	case c.s.ServesTurns(topic):
		return c.takeInTurns(ctx, topic, want)
	case c.req.Order == outmill.OrderKey:
		return c.takeByKey(ctx, topic, want)
	default:
		return c.takeUnpaused(ctx, topic, want)
	}
}

// turnsOf is the state of a claim that serves turns.
type turnsOf struct {
	// place is the turn with which the claim began; it goes on from next, to place if it has
	// wrapped. last: there are no further turns.
	place, next   string
	wrapped, last bool
	// read has the last record that was read of each turn, and taken the order in which the claim
	// took its records.
	read  map[string]int64
	taken map[int64]int
	// found are the turns of the last search.
	found []string
	// end is where the next claim begins.
	end string
}

// takeInTurns leases up to want records, so that the tenants take turns.
func (c *claim) takeInTurns(ctx context.Context, topic string, want int) error {
	return c.inOrder(ctx, topic, func(ctx context.Context, t *txn) (*line, error) {
		l := c.newLine(t, topic, want)
		place := c.s.tenants.Begin(c.req.Group, topic)
		l.Turns, l.Rooms = true, storekit.RoomsOf(c.req, topic, c.records)
		l.turns = turnsOf{place: place, next: place, read: map[string]int64{}, taken: map[int64]int{}}
		served, err := l.beginTurns(ctx)
		if err != nil || !served {
			return l, err
		}
		err = l.serveTurns(ctx)
		c.again = c.again || l.Again
		c.s.tenants.End(c.req.Group, topic, l.turns.end)
		return l, err
	})
}

// beginTurns makes due records ready, checks lanes that may no longer be blocked, gives turns to
// records without one, and finds the first turns.
func (l *line) beginTurns(ctx context.Context) (served bool, err error) {
	var lanes []lane
	most := l.c.s.atOnce.Admit(l.Want)
	var unheld, given int
	find := func() []step {
		l.turns.next, l.turns.wrapped = l.turns.place, false
		return []step{{template: sqlGiveTurns, args: []any{l.c.req.Group, l.topic, most}, count: &given}, l.turnsStep(l.Want)}
	}
	first := l.lanesStep(&lanes)
	if l.Unordered {
		first = step{template: sqlUnholdAny, args: []any{l.c.req.Group, l.topic, most}, count: &unheld}
	}
	if err := l.start(ctx, append([]step{first}, find()...)...); err != nil {
		return false, err
	}
	if served, err := l.heedPauses(ctx); err != nil || !served {
		return false, err
	}
	l.c.again = l.c.again || unheld == most
	for len(lanes) > 0 {
		looked, done := len(lanes), laneLook{}
		if err := l.findBehind(ctx, lanes); err != nil {
			return false, err
		}
		steps, err := l.lookAt(lanes, &done)
		if err != nil {
			return false, err
		}
		if err := l.t.run(ctx, slices.Concat(steps, []step{l.lanesStep(&lanes)}, find())...); err != nil {
			return false, err
		}
		if !l.lookFurther(looked, done) {
			break
		}
	}
	l.c.again = l.c.again || given == most
	return true, nil
}

// findBehind notes of which lanes a ready record is before the held ones.
func (l *line) findBehind(ctx context.Context, lanes []lane) error {
	at := map[string]int{}
	var keys []string
	var places []int64
	for i, lane := range lanes {
		if lane.state.Held != storekit.NoSeq {
			at[lane.key] = i
			keys, places = append(keys, lane.key), append(places, lane.state.Held)
		}
	}
	row := func(scan func(...any) error) error {
		var key string
		err := scan(&key)
		lanes[at[key]].behind = err == nil
		return err
	}
	return l.t.run(ctx, step{template: sqlBehindReady, args: []any{l.c.req.Group, l.topic, keys, places}, row: row})
}

// turnsStep finds the next turns, for a claim that wants so many records.
func (l *line) turnsStep(want int) step {
	w := &l.turns
	n := l.Rooms.TurnsAtOnce(want)
	w.found = nil
	to, rest := afterTurns, w.place
	if w.wrapped {
		to, rest = w.place, ""
	}
	next := w.next
	w.last = true
	return step{template: sqlTurnsFrom, args: []any{l.c.req.Group, l.topic, next, n, to, rest}, row: func(scan func(...any) error) error {
		var turn string
		var wrapped bool
		err := scan(&turn, &wrapped)
		w.found = append(w.found, turn)
		w.wrapped = w.wrapped || wrapped
		w.next = storekit.AfterTurn(turn)
		w.last = len(w.found) < n
		return err
	}}
}

// serveTurns takes an equal share of each tenant, and then fills the claim from those that have
// more.
func (l *line) serveTurns(ctx context.Context) error {
	var open []string
	for len(l.turns.found) > 0 {
		more, goOn, err := l.shareOut(ctx, l.turns.found)
		if l.turns.end = l.Place; err != nil || !goOn {
			return err
		}
		open = append(open, more...)
		if l.turns.last || l.Taken >= l.Want {
			break
		}
		if err := l.t.run(ctx, l.turnsStep(l.Want-l.Taken)); err != nil {
			return err
		}
	}
	for len(open) > 0 && l.Taken < l.Want {
		more, goOn, err := l.shareOut(ctx, open)
		if l.Full {
			l.turns.end = l.Place
		}
		if err != nil || !goOn {
			return err
		}
		open = more
	}
	return nil
}

// shareOut takes an equal share of the tenants. It returns those that may have more, and whether
// the claim goes on.
func (l *line) shareOut(ctx context.Context, turns []string) (open []string, goOn bool, err error) {
	turns, largest := l.Rooms.With(turns)
	if len(turns) == 0 {
		return nil, true, nil
	}
	share := min(storekit.ShareOf(l.Want-l.Taken, len(turns)), largest)
	var page []storekit.Candidate
	if err := l.t.run(ctx, append(l.settle(), l.turnPage(turns, share, &page))...); err != nil {
		return nil, false, err
	}
	counts := map[string]int{}
	for _, r := range page {
		turn := storekit.Turn(r.TenantID)
		counts[turn]++
		l.turns.read[turn] = max(l.turns.read[turn], r.Seq)
	}
	for _, turn := range turns {
		if counts[turn] == share {
			open = append(open, turn)
		}
	}
	l.Page(storekit.InTurns(page, turns))
	for _, r := range l.Leasing {
		l.turns.taken[r.Seq] = len(l.turns.taken)
	}
	return open, !l.Full && l.look(len(page)), nil
}

// turnPage reads share records of each turn.
func (l *line) turnPage(turns []string, share int, into *[]storekit.Candidate) step {
	behind := make([]int64, len(turns))
	for i, turn := range turns {
		behind[i] = l.turns.read[turn]
	}
	page := step{template: sqlTurnPage, args: []any{l.c.req.Group, l.topic, l.c.req.Owner.String(), turns, behind, share}}
	page.row = func(scan func(...any) error) error {
		var r storekit.Candidate
		var s scanState
		var tenant *string
		var late *time.Time
		var lateSeq int64
		err := scan(slices.Concat([]any{&r.ID, &r.Seq, &r.Key, &r.Expired, &r.Expiries, &r.Size, &r.Due, &tenant, &r.Expires, &r.First},
			s.columns(&r.State), []any{&r.Behind, &l.Unturned, &late, &lateSeq})...)
		r.TenantID = textOf(tenant)
		s.into(&r.State)
		if late != nil {
			l.Until = storekit.Moment{Due: *late, Seq: lateSeq}
		}
		*into = append(*into, r)
		return err
	}
	if !l.Unordered {
		page.args = append(page.args, l.notAdmitted, l.notAdmitted && l.c.req.KeyPolicy == outmill.KeySkip)
	} else {
		page.template = sqlTurnPageAny
		page.row = func(scan func(...any) error) error {
			var r storekit.Candidate
			err := scanCandidate(&r, scan)
			*into = append(*into, r)
			return err
		}
	}
	return page
}
