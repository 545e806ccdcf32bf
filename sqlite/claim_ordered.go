package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlTimeCome reads records that are due and not ready, of each kind those that have been
	// due longest.
	sqlTimeCome = `SELECT seq, available_at, stage FROM (SELECT seq, available_at, stage FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = 2 AND available_at <= ?3 ORDER BY available_at, seq LIMIT ?4)
UNION ALL
SELECT seq, available_at, stage FROM (SELECT seq, available_at, stage FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = 3 AND available_at <= ?3 ORDER BY available_at, seq LIMIT ?4)
UNION ALL
SELECT seq, available_at, stage FROM (SELECT seq, available_at, stage FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND available_at <= ?3 AND ` + notExpired + `
	ORDER BY available_at, seq LIMIT ?4)`

	// sqlAdmit makes them ready. From then on the place of their append decides their order,
	// and stage 4 is only for leases that have not ended.
	sqlAdmit = `UPDATE {p:records} SET status = 'pending', stage = 0, available_at = NULL, owner = '',
	attempts = attempts + (stage = 4 AND expiries >= 2), expiries = expiries + (stage = 4)
WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlLine reads the first ready records without a turn, and the first with one.
	sqlLine = `
SELECT * FROM (SELECT ` + candidateColumns + ` FROM {p:records} INDEXED BY {p:line}
	WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL AND seq > ?3 ORDER BY seq LIMIT ?4)
UNION ALL
SELECT * FROM (SELECT ` + candidateColumns + ` FROM {p:records} INDEXED BY {p:turn_line}
	WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NOT NULL AND seq > ?3 ORDER BY seq LIMIT ?4)`

	// sqlTopicLine reads the ready records and those that claims by key have held.
	sqlTopicLine = `
SELECT * FROM (SELECT ` + candidateColumns + ` FROM {p:records} INDEXED BY {p:line}
	WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL AND seq < ?3 ORDER BY seq LIMIT ?4)
UNION ALL
SELECT * FROM (SELECT ` + candidateColumns + ` FROM {p:records} INDEXED BY {p:turn_line}
	WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NOT NULL AND seq < ?3 ORDER BY seq LIMIT ?4)
UNION ALL
SELECT * FROM (SELECT ` + candidateColumns + ` FROM {p:records} INDEXED BY {p:held}
	WHERE grp = ?1 AND topic = ?2 AND stage = 1 AND seq < ?3 ORDER BY seq LIMIT ?4)`

	// sqlKeyStates returns, for each key: the lease of another owner and its end, the first
	// waiting record and how long it blocks the key, the first held record, and whether any
	// record is parked.
	sqlKeyStates = `SELECT k.value, coalesce(below.owner, above.owner, ''), coalesce(below.available_at, above.available_at),
	w.seq, min(w.available_at, coalesce(w.expires_at, w.available_at)),
	(SELECT min(seq) FROM {p:records} INDEXED BY {p:held_key}
		WHERE grp = ?1 AND topic = ?2 AND key = k.value AND stage = 1),
	EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:parked}
		WHERE grp = ?1 AND topic = ?2 AND key = k.value AND parked > 0)
FROM json_each(?4) AS k
LEFT JOIN {p:records} AS below ON below.seq = (SELECT seq FROM {p:records} INDEXED BY {p:leased_key}
	WHERE grp = ?1 AND topic = ?2 AND key = k.value AND stage = 4 AND key <> '' AND owner < ?5
	AND (available_at > ?3 OR ` + notExpired + `) LIMIT 1)
LEFT JOIN {p:records} AS above ON above.seq = (SELECT seq FROM {p:records} INDEXED BY {p:leased_key}
	WHERE grp = ?1 AND topic = ?2 AND key = k.value AND stage = 4 AND key <> '' AND owner > ?5
	AND (available_at > ?3 OR ` + notExpired + `) LIMIT 1)
LEFT JOIN {p:records} AS w ON w.seq = (SELECT seq FROM {p:records} INDEXED BY {p:waiting_key}
	WHERE grp = ?1 AND topic = ?2 AND key = k.value AND stage = 2 AND key <> '' AND ` + notExpired + ` ORDER BY seq LIMIT 1)`

	// sqlTopicState is the same for a whole topic.
	sqlTopicState = `SELECT
	coalesce((SELECT owner FROM {p:records} INDEXED BY {p:later}
		WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND available_at IS NOT NULL AND owner <> ?4
		AND (available_at > ?3 OR ` + notExpired + `) LIMIT 1), ''),
	(SELECT seq FROM {p:records} INDEXED BY {p:waiting}
		WHERE grp = ?1 AND topic = ?2 AND stage = 2 AND ` + notExpired + ` ORDER BY seq LIMIT 1)`

	sqlParkMet = `UPDATE {p:records} SET status = 'dead', stage = 6, available_at = NULL, paused_by = NULL, parked = 1, last_error = ?2
WHERE seq IN (SELECT value FROM json_each(?1))`
)

func placeOf(seq sql.NullInt64) int64 {
	if !seq.Valid {
		return storekit.NoSeq
	}
	return seq.Int64
}

// untilOf returns the end of a key's block, nil if there is none.
func untilOf(end sql.NullInt64) *time.Time {
	if !end.Valid {
		return nil
	}
	until := time.UnixMicro(end.Int64)
	return &until
}

// timeCome is a due record, and the time since which it is due.
type timeCome struct {
	seq, due int64
	stage    int
}

// admit makes due records ready, over all topics as many as one transaction takes. If there are
// more, the claim sees only those that were due before the last one taken. If none can be
// taken, it leaves the topic to the next transaction.
func (c *claim) admit(ctx context.Context, t *txn, topic string) (served bool, err error) {
	c.until = storekit.Moment{}
	due, err := list(ctx, t, func(rows *sql.Rows, d *timeCome) error { return rows.Scan(&d.seq, &d.due, &d.stage) },
		sqlTimeCome, c.req.Group, topic, t.now, c.admits+1)
	if err != nil || len(due) == 0 {
		return true, err
	}
	slices.SortFunc(due, func(a, b timeCome) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) })
	if len(due) > c.admits {
		c.again = true
		rest := due[c.admits:]
		if due = due[:c.admits]; len(due) == 0 {
			return false, nil
		}
		last := due[len(due)-1]
		if !c.turns || slices.ContainsFunc(rest, func(d timeCome) bool {
			// A retry blocks its key until it is admitted. An ended lease of the same owner does not.
			return d.stage != storekit.StageWaiting || c.req.KeyPolicy == outmill.KeySkip
		}) {
			c.until = storekit.Moment{Due: time.UnixMicro(last.due), Seq: last.seq}
		}
	}
	c.admits -= len(due)
	seqs := make([]int64, len(due))
	for i, d := range due {
		seqs[i] = d.seq
	}
	if err := t.openLanes(ctx, seqs); err != nil {
		return false, err
	}
	_, err = t.exec(ctx, sqlAdmit, seqList(seqs))
	return true, err
}

// takeByKey leases up to want records, those of each key in their order.
func (c *claim) takeByKey(ctx context.Context, t *txn, topic string, want int) error {
	if served, err := c.admit(ctx, t, topic); err != nil || !served {
		return err
	}
	for ask := want; want > 0; ask = max(ask, min(2*ask, minLooks)) {
		back, err := c.lookAtLanes(ctx, t, topic, ask)
		if err != nil {
			return err
		}
		before := len(c.records)
		full, err := c.scanLine(ctx, t, topic, want)
		// If as many records as requested became ready, but some of them cannot be leased
		// (expired, parked), the lanes may have more.
		if err != nil || full || back < ask || c.looks <= 0 {
			return err
		}
		want -= len(c.records) - before
	}
	return nil
}

// scanLine leases up to want of the ready records. It reports whether the claim needs no more
// records of the topic.
func (c *claim) scanLine(ctx context.Context, t *txn, topic string, want int) (full bool, err error) {
	line := keyLine{
		OrderedScan: storekit.OrderedScan{
			Policy: c.req.KeyPolicy, Want: want, MaxBytes: c.req.MaxBytes, Bytes: c.bytes, First: len(c.records) == 0, Until: c.until,
			Pauses: t.pauses, Group: c.req.Group, Topic: topic,
		},
		c: c, t: t, topic: topic, states: map[string]storekit.KeyState{},
	}
	size, seen := max(want, minPage), int64(0)
	for line.Taken < want {
		page, err := t.candidates(ctx, sqlLine, c.req.Group, topic, seen, size)
		if err != nil || len(page) == 0 {
			return false, err
		}
		slices.SortFunc(page, func(a, b candidate) int { return cmp.Compare(a.seq, b.seq) })
		// Each of the two lists may have more records behind its page.
		page = page[:min(len(page), size)]
		if err := line.decide(ctx, page); err != nil || line.Full {
			return line.Full, err
		}
		if len(page) < size || !c.look(len(page)) {
			return false, nil
		}
		seen = page[len(page)-1].seq
	}
	return true, nil
}

const minPage = 32

// keyLine scans the ready records of a topic.
type keyLine struct {
	storekit.OrderedScan
	c      *claim
	t      *txn
	topic  string
	states map[string]storekit.KeyState
	// turns is the order of the tenants, if the claim serves turns.
	turns []string
}

// decide decides about the page, and carries the decisions out.
func (l *keyLine) decide(ctx context.Context, page []candidate) error {
	list, err := l.learn(ctx, page)
	if err != nil {
		return err
	}
	if l.Turns {
		list = storekit.InTurns(list, l.turns)
	}
	l.Page(list)
	l.c.taken, l.c.bytes, l.c.over = seqsOf(l.Leasing), l.Bytes, l.c.over || l.Over
	for _, step := range []func() error{
		func() error { return l.t.passExpired(ctx, seqsOf(l.Expired)) },
		func() error { return l.t.park(ctx, seqsOf(l.Parked)) },
		func() error { return l.t.setAside(ctx, pausedOf(l.Aside)) },
		func() error { return l.c.lease(ctx, l.t) },
		func() error { return l.t.hold(ctx, l.c.req.Group, l.topic, seqsOf(l.Holding), l.HeldKeys) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	l.Settled()
	return nil
}

func seqsOf(list []storekit.Candidate) []int64 {
	seqs := make([]int64, len(list))
	for i, r := range list {
		seqs[i] = r.Seq
	}
	return seqs
}

// learn reads the states of the page's keys.
func (l *keyLine) learn(ctx context.Context, page []candidate) ([]storekit.Candidate, error) {
	if l.Turns {
		// The page before may have held records that come before those of this one.
		clear(l.states)
	}
	list, met := make([]storekit.Candidate, len(page)), make(map[string]bool, len(page))
	var unknown []string
	for i, r := range page {
		list[i] = storekit.Candidate{
			Seq: r.seq, Key: r.key, TenantID: r.tenant, Expired: r.expired(l.t.now), Expires: untilOf(r.expires),
			Expiries: r.expiries, Size: r.size, Due: time.UnixMicro(r.due),
			First: r.key != "" && !met[r.key] && !l.Unordered, Behind: r.behind,
		}
		if !list[i].First {
			continue
		}
		met[r.key] = true
		if _, known := l.states[r.key]; !known {
			unknown = append(unknown, r.key)
		}
	}
	states, err := l.t.keyStates(ctx, l.c, l.topic, unknown)
	for key, state := range states {
		l.states[key] = state
	}
	for i := range list {
		if list[i].First {
			list[i].State = l.states[list[i].Key]
		}
	}
	return list, err
}

// takeByTopic leases up to want records as if the topic were one key. It needs no lane, because
// the first records show whether the topic is blocked.
func (c *claim) takeByTopic(ctx context.Context, t *txn, topic string, want int) error {
	if served, err := c.admit(ctx, t, topic); err != nil || !served {
		return err
	}
	for want > 0 {
		state, err := t.topicState(ctx, c, topic)
		if err != nil || state.Other != "" {
			return err
		}
		list, err := t.candidates(ctx, sqlTopicLine, c.req.Group, topic, state.Barrier(c.req.KeyPolicy), want)
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.seq, b.seq) })
		// Each of the lists may have more records behind its page.
		list = list[:min(len(list), want)]
		before := len(c.records)
		more, err := c.takeInOrder(ctx, t, topic, list, want)
		if err != nil || !more {
			return err
		}
		want -= len(c.records) - before
	}
	return nil
}

// park makes records dead that a claim met behind a parked one.
func (t *txn) park(ctx context.Context, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	if err := t.openLanes(ctx, seqs); err != nil {
		return err
	}
	if err := t.moveSteps(ctx, isDead, sqlStepsOf, seqList(seqs)); err != nil {
		return err
	}
	_, err := t.exec(ctx, sqlParkMet, seqList(seqs), storekit.ParkedError)
	return err
}

func (t *txn) keyStates(ctx context.Context, c *claim, topic string, keys []string) (map[string]storekit.KeyState, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	states := make(map[string]storekit.KeyState, len(keys))
	var otherEnd, waiting, waitingEnd, held sql.NullInt64
	_, err := list(ctx, t, func(rows *sql.Rows, _ *struct{}) error {
		var key string
		var state storekit.KeyState
		if err := rows.Scan(&key, &state.Other, &otherEnd, &waiting, &waitingEnd, &held, &state.Parked); err != nil {
			return err
		}
		state.OtherEnd, state.WaitingEnd = untilOf(otherEnd), untilOf(waitingEnd)
		state.Waiting, state.Held = placeOf(waiting), placeOf(held)
		states[key] = state
		return nil
	}, sqlKeyStates, c.req.Group, topic, t.now, textList(keys), c.owner)
	if err != nil || !t.pauses.HasTenants() {
		return states, err
	}
	_, err = list(ctx, t, func(rows *sql.Rows, _ *struct{}) error {
		var key, tenant string
		var expires sql.NullInt64
		err := rows.Scan(&key, &tenant, &expires)
		state := states[key]
		state.HeldTenant, state.HeldExpiry = tenant, untilOf(expires)
		states[key] = state
		return err
	}, sqlHeadTenants, c.req.Group, topic, textList(keys), t.now)
	return states, err
}

func (t *txn) topicState(ctx context.Context, c *claim, topic string) (storekit.KeyState, error) {
	var state storekit.KeyState
	var waiting sql.NullInt64
	_, err := t.one(ctx, []any{&state.Other, &waiting}, sqlTopicState, c.req.Group, topic, t.now, c.owner)
	state.Waiting = placeOf(waiting)
	return state, err
}
