package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// sqlNow is the time for statements that check whether a write transaction is worthwhile.
const sqlNow = `CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000`

// sqlClaimable is true for a topic that may have records to claim. ?2 is the claimer, ?3 is
// 'waiting' if waiting records are skipped.
const sqlClaimable = `(
	EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:line} WHERE grp = ?1 AND topic = t.topic AND stage = 0 AND turn IS NULL)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:turn_line} WHERE grp = ?1 AND topic = t.topic AND stage = 0 AND turn IS NOT NULL)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp = ?1 AND topic = t.topic AND stage = 2 AND available_at <= ` + sqlNow +
	`)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp = ?1 AND topic = t.topic AND stage = 3 AND available_at <= ` + sqlNow +
	`)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE grp = ?1 AND topic = t.topic AND stage = 4 AND available_at <= ` + sqlNow +
	`)
	OR EXISTS (SELECT 1 FROM {p:lanes} INDEXED BY {p:lanes_blocked} WHERE grp = ?1 AND topic = t.topic AND blocked_by IN ('', ?2, ?3))
	OR EXISTS (SELECT 1 FROM {p:lanes} INDEXED BY {p:lanes_until} WHERE grp = ?1 AND topic = t.topic AND until <= ` + sqlNow + `)
	OR (?4 AND EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:held} WHERE grp = ?1 AND topic = t.topic AND stage = 1)))`

const (
	// sqlDueTopics finds the topics by one index search each, so its cost grows with the topics
	// and not with their records.
	sqlDueTopics = `WITH RECURSIVE
	line (topic) AS (
		SELECT min(topic) FROM {p:records} INDEXED BY {p:line} WHERE grp = ?1 AND stage = 0 AND turn IS NULL
		UNION ALL
		SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:line} WHERE grp = ?1 AND stage = 0 AND turn IS NULL AND topic > line.topic)
		FROM line WHERE topic IS NOT NULL),
	turns (topic) AS (
		SELECT min(topic) FROM {p:records} INDEXED BY {p:turn_line} WHERE grp = ?1 AND stage = 0 AND turn IS NOT NULL
		UNION ALL
		SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:turn_line}
			WHERE grp = ?1 AND stage = 0 AND turn IS NOT NULL AND topic > turns.topic)
		FROM turns WHERE topic IS NOT NULL),
	later (topic) AS (
		SELECT min(topic) FROM {p:records} INDEXED BY {p:later} WHERE grp = ?1 AND available_at IS NOT NULL
		UNION ALL
		SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:later} WHERE grp = ?1 AND available_at IS NOT NULL AND topic > later.topic)
		FROM later WHERE topic IS NOT NULL),
	held (topic) AS (
		SELECT min(topic) FROM {p:records} INDEXED BY {p:held} WHERE grp = ?1 AND stage = 1
		UNION ALL
		SELECT (SELECT min(topic) FROM {p:records} INDEXED BY {p:held} WHERE grp = ?1 AND stage = 1 AND topic > held.topic)
		FROM held WHERE topic IS NOT NULL)
SELECT topic FROM (
	SELECT topic FROM line WHERE topic IS NOT NULL
	UNION SELECT topic FROM turns WHERE topic IS NOT NULL
	UNION SELECT topic FROM later WHERE topic IS NOT NULL
	UNION SELECT topic FROM held WHERE topic IS NOT NULL) AS t
WHERE ` + sqlClaimable

	sqlDueNames = `SELECT topic FROM (SELECT value AS topic FROM json_each(?5)) AS t WHERE ` + sqlClaimable

	sqlLease = `UPDATE {p:records} SET status = 'leased', stage = 4, owner = ?2, available_at = ?3, claims = claims + 1,
	attempts = attempts + (stage = 4 AND expiries >= 2), expiries = expiries + (stage = 4)
WHERE seq IN (SELECT value FROM json_each(?1)) RETURNING ` + recordColumns + `, false`

	// sqlPassExpired moves expired records out of the ready ones. They stay pending until the
	// janitor makes them dead.
	sqlPassExpired = `UPDATE {p:records} SET stage = 5, available_at = NULL WHERE seq IN (SELECT value FROM json_each(?1))`
)

// manyTopics is the most names that a claim searches one by one. If there are more, it searches
// all topics that have records.
const manyTopics = 16

// maxClaim is the most records that one claim returns, whatever its limit.
const maxClaim = 100_000

// Claim leases up to req.Limit records, and never more than 100,000. See outmill.Queue. If
// nothing is due it does not lock the database.
//
// A claim works in steps. Each is a transaction of some milliseconds: a million records that
// become due at once become ready a thousand at a time. A claim that finds nothing in half of
// the time that ctx leaves returns nothing, and wakes the readers.
func (s *Store) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	const operation = "claim"
	if err := storekit.CheckClaim(req); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	req.Group = storekit.GroupOf(req.Group)
	req.Limit = min(req.Limit, maxClaim)
	half := storekit.HalfTime(ctx)
	for {
		topics, err := s.dueTopics(ctx, req)
		if err != nil || len(topics) == 0 {
			return nil, err
		}
		c := &claim{req: req, atOnce: s.atOnce, topics: s.topics.Order(req.Group, req.Topics, topics)}
		if err := s.write(ctx, operation, c.run); err != nil {
			return nil, err
		}
		if len(c.records) > 0 || !c.again {
			s.logger.Claimed(req, len(c.records))
			return c.records, nil
		}
		if !half.IsZero() && time.Now().After(half) {
			s.waker.notifier.Notify()
			return nil, nil
		}
	}
}

// dueTopics returns the selected topics that may have something to claim.
func (s *Store) dueTopics(ctx context.Context, req outmill.ClaimRequest) ([]string, error) {
	// Held records matter only to claims without an order and to claims of whole topics. Claims
	// by key read the lanes instead.
	heldToo := req.Order != outmill.OrderKey
	args := []any{req.Group, req.Owner.String(), storekit.IgnoredBlocker(req.KeyPolicy), heldToo}
	var found []string
	err := s.read(ctx, "claim", func(ctx context.Context, t *txn) (err error) {
		names, listed := req.Topics.Names()
		if listed && len(names) <= manyTopics {
			found, err = t.texts(ctx, sqlDueNames, append(args, textList(names))...)
		} else {
			found, err = t.texts(ctx, sqlDueTopics, args...)
		}
		if err == nil {
			found, err = t.served(ctx, req.Group, found)
		}
		return err
	})
	match := req.Topics.Matcher()
	return slices.DeleteFunc(found, func(topic string) bool { return !match(topic) }), err
}

// claim is one claim within one transaction.
type claim struct {
	req    outmill.ClaimRequest
	owner  string
	topics []string
	// records are leased, taken are about to be leased.
	records []*outmill.Record
	taken   []int64
	bytes   int
	// over: the claim met a suspect, which must be alone.
	over bool
	// looks is the number of records that this transaction may still examine.
	looks int
	// admits is the number of records that this transaction may still make ready.
	admits int
	// resumed is what comes back after pauses, and returns is the number of records and keys
	// that this transaction may still bring back.
	resumed resumed
	returns int
	// until is the moment up to which the claim sees due records of the current topic.
	until storekit.Moment
	// turns: the claim serves the tenants of the current topic in turn.
	turns bool
	// again: the looks, the admits or the returns were used up, so there may be more to claim.
	again  bool
	atOnce storekit.BatchSize
}

// minLooks is the minimum for the limit of expired or blocked records that one transaction of a
// claim skips. Each record counts once.
const minLooks = 1000

// candidate is a record with the data that a claim needs to decide about it.
type candidate struct {
	seq      int64
	key      string
	stage    int
	due      int64
	expires  sql.NullInt64
	expiries int
	size     int
	tenant   string
	// behind is the ready record before this one in its key, if the claim serves turns.
	behind int64
}

const candidateColumns = `seq, key, stage, max(next_at, created_at), expires_at, expiries, size, tenant_id`

func (c *claim) run(ctx context.Context, t *txn) (err error) {
	*c = claim{req: c.req, atOnce: c.atOnce, topics: c.topics, owner: c.req.Owner.String(), looks: max(minLooks, 10*c.req.Limit),
		admits: c.atOnce.Admit(c.req.Limit), returns: c.atOnce.Admit(c.req.Limit)}
	if c.resumed, err = t.resumed(ctx, c.req.Group); err != nil {
		return err
	}
	return storekit.ServeTopics(c.topics, c.req.Limit, c.room, func() int { return len(c.records) }, func(topic string, want int) error {
		if t.pauses.Topic(c.req.Group, topic) {
			return nil
		}
		if served, err := c.bringBack(ctx, t, topic); err != nil || !served {
			return err
		}
		c.turns = c.req.Order != outmill.OrderTopic && t.s.ServesTurns(topic)
		switch {
		case c.turns:
			return c.takeInTurns(ctx, t, topic, want)
		case c.req.Order == outmill.OrderKey:
			return c.takeByKey(ctx, t, topic, want)
		case c.req.Order == outmill.OrderTopic:
			return c.takeByTopic(ctx, t, topic, want)
		default:
			return c.takeAny(ctx, t, topic, want)
		}
	})
}

// room is the number of records that the claim may still take.
func (c *claim) room() int {
	if c.over {
		return 0
	}
	return c.req.Limit - len(c.records) - len(c.taken)
}

// look spends n looks, and reports whether any are left.
func (c *claim) look(n int) bool {
	c.looks -= n
	c.again = c.again || c.looks <= 0
	return c.looks > 0
}

// take takes the record and reports true, unless the record does not fit. After false no later
// record of its topic may be taken either.
func (c *claim) take(r candidate) bool {
	first := len(c.records)+len(c.taken) == 0
	tooBig := c.req.MaxBytes > 0 && c.bytes+r.size > c.req.MaxBytes
	if c.room() <= 0 || tooBig && !first {
		return false
	}
	if suspect(r) {
		c.over = true
		if !first {
			return false
		}
	}
	c.taken = append(c.taken, r.seq)
	c.bytes += r.size
	return true
}

// suspect reports whether the record is a suspect, with the expiry that this claim counts.
func suspect(r candidate) bool {
	if r.stage == storekit.StageLeased {
		return r.expiries+1 >= outmill.SuspectExpiries
	}
	return r.expiries >= outmill.SuspectExpiries
}

// isLater reports whether the record is not due yet for the claim.
func (c *claim) isLater(r candidate) bool { return c.until.Before(time.UnixMicro(r.due), r.seq) }

func (r candidate) expired(now int64) bool { return r.expires.Valid && r.expires.Int64 <= now }

// lease leases the taken records to the claimer.
func (c *claim) lease(ctx context.Context, t *txn) error {
	if len(c.taken) == 0 {
		return nil
	}
	if err := t.openLanes(ctx, c.taken); err != nil {
		return err
	}
	leased, err := list(ctx, t, scanRecord, sqlLease, seqList(c.taken), c.owner, t.after(c.req.Lease))
	if err != nil {
		return err
	}
	// RETURNING does not return the rows in the order of the list.
	bySeq := make(map[int64]*outmill.Record, len(leased))
	for _, l := range leased {
		bySeq[l.seq] = l.record
	}
	for _, seq := range c.taken {
		c.records = append(c.records, bySeq[seq])
	}
	c.taken = c.taken[:0]
	return nil
}

// passExpired makes later claims skip the expired records.
func (t *txn) passExpired(ctx context.Context, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	if err := t.openLanes(ctx, seqs); err != nil {
		return err
	}
	_, err := t.exec(ctx, sqlPassExpired, seqList(seqs))
	return err
}

func (t *txn) candidates(ctx context.Context, template string, args ...any) ([]candidate, error) {
	return list(ctx, t, func(rows *sql.Rows, r *candidate) error {
		return rows.Scan(&r.seq, &r.key, &r.stage, &r.due, &r.expires, &r.expiries, &r.size, sqlkit.Text(&r.tenant))
	}, template, args...)
}

// notExpired excludes records that have expired at the time ?3. It is for ended leases, which
// stay until they are reaped. There are never more of them than records that were leased at one
// time.
const notExpired = `(expires_at IS NULL OR expires_at > ?3)`

// sqlCandidates reads the first records of each kind that may be due.
const sqlCandidates = `
SELECT * FROM (SELECT seq, key, stage, max(next_at, created_at), expires_at, expiries, size, tenant_id FROM {p:records} INDEXED BY {p:line}
	WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL ORDER BY seq LIMIT ?4)
UNION ALL
SELECT * FROM (SELECT seq, key, stage, max(next_at, created_at), expires_at, expiries, size, tenant_id
	FROM {p:records} INDEXED BY {p:turn_line}
	WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NOT NULL ORDER BY seq LIMIT ?4)
UNION ALL
SELECT * FROM (SELECT seq, key, stage, max(next_at, created_at), expires_at, expiries, size, tenant_id FROM {p:records} INDEXED BY {p:held}
	WHERE grp = ?1 AND topic = ?2 AND stage = 1 ORDER BY seq LIMIT ?4)
UNION ALL
SELECT * FROM (SELECT seq, key, stage, available_at, expires_at, expiries, size, tenant_id FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = 2 AND available_at <= ?3 ORDER BY available_at, seq LIMIT ?4)
UNION ALL
SELECT * FROM (SELECT seq, key, stage, available_at, expires_at, expiries, size, tenant_id FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = 3 AND available_at <= ?3 ORDER BY available_at, seq LIMIT ?4)
UNION ALL
SELECT * FROM (SELECT seq, key, stage, available_at, expires_at, expiries, size, tenant_id FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND available_at <= ?3 AND ` + notExpired + `
	ORDER BY available_at, seq LIMIT ?4)`

// takeAny takes records without an order, those that have been due longest first.
func (c *claim) takeAny(ctx context.Context, t *txn, topic string, want int) error {
	c.until = storekit.Moment{}
	for ask := want; want > 0; ask = max(want, min(2*ask, minLooks)) {
		list, err := t.candidates(ctx, sqlCandidates, c.req.Group, topic, t.now, ask)
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq))
		})
		before := len(c.records)
		more, err := c.takeInOrder(ctx, t, topic, list, want)
		if err != nil || !more {
			return err
		}
		want -= len(c.records) - before
	}
	return nil
}

// takeInOrder leases up to want of the records. It reports whether it met expired or paused
// ones, so that another read may find others. If the topic is claimed as one key, a paused
// record holds the rest of the topic.
func (c *claim) takeInOrder(ctx context.Context, t *txn, topic string, list []candidate, want int) (more bool, err error) {
	var expired []int64
	var aside []paused
	full := false
	for _, r := range list {
		if c.isLater(r) {
			full = true
			break
		}
		if r.expired(t.now) {
			expired = append(expired, r.seq)
			continue
		}
		if number := t.pauses.Of(c.req.Group, topic, r.key, r.tenant); number != 0 {
			if c.req.Order == outmill.OrderTopic {
				full = true
				break
			}
			aside = append(aside, paused{r.seq, number})
			continue
		}
		if len(c.taken) == want || !c.take(r) {
			full = true
			break
		}
	}
	skipped := len(expired) + len(aside)
	more = !full && skipped > 0 && c.look(skipped)
	return more, errors.Join(t.passExpired(ctx, expired), t.setAside(ctx, aside), c.lease(ctx, t))
}
