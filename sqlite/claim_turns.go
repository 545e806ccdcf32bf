package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
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
// claimed (turn_key). It returns no record with a key that is behind one without a turn.
//
// A store without the setting reads the records with a turn and those without in the order of
// the appends.

const (
	// sqlGiveTurns gives a turn to the first records without one.
	sqlGiveTurns = `UPDATE {p:records} SET turn = '.' || coalesce(tenant_id, '') WHERE seq IN (SELECT seq FROM {p:records} INDEXED BY {p:line}
	WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL ORDER BY seq LIMIT ?3)`

	sqlUnturned = `SELECT coalesce(min(seq), 0) FROM {p:records} INDEXED BY {p:line}
	WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL`

	// sqlTurnsFrom finds the first ?4 turns from ?3 on.
	sqlTurnsFrom = `WITH RECURSIVE t (turn, nth) AS (
	SELECT min(turn), 1 FROM {p:records} INDEXED BY {p:turns} WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NOT NULL AND turn >= ?3
	UNION ALL
	SELECT (SELECT min(turn) FROM {p:records} INDEXED BY {p:turns}
		WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NOT NULL AND turn > t.turn), nth + 1
	FROM t WHERE turn IS NOT NULL AND nth < ?4)
SELECT turn FROM t WHERE turn IS NOT NULL`

	// turnPage reads ?4 records of each turn. ?3 is a list of [turn, the last record that was
	// read].
	turnPage = ` FROM json_each(?3) AS t CROSS JOIN {p:records} AS r ON r.seq IN (SELECT s.seq FROM {p:records} AS s INDEXED BY {p:turns}
	WHERE s.grp = ?1 AND s.topic = ?2 AND s.stage = 0 AND s.turn IS NOT NULL AND s.turn = t.value ->> 0 AND s.seq > t.value ->> 1
	ORDER BY s.seq LIMIT ?4)`

	turnColumns = `r.seq, r.key, r.stage, max(r.next_at, r.created_at), r.expires_at, r.expiries, r.size, r.tenant_id`

	sqlTurnPage = `SELECT ` + turnColumns + `, coalesce((SELECT max(b.seq) FROM {p:records} AS b INDEXED BY {p:turn_key}
	WHERE b.grp = ?1 AND b.topic = ?2 AND b.key = r.key AND b.key <> '' AND b.stage = 0 AND b.turn IS NOT NULL AND b.seq < r.seq),
	0)` + turnPage

	sqlTurnPageAny = `SELECT ` + turnColumns + `, 0` + turnPage

	// sqlReadyBefore returns whether a ready record of the key is before ?4.
	sqlReadyBefore = `SELECT EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:turn_key}
	WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND key <> '' AND stage = 0 AND turn IS NOT NULL AND seq < ?4)`

	sqlHeldLine = `SELECT seq FROM {p:records} INDEXED BY {p:held} WHERE grp = ?1 AND topic = ?2 AND stage = 1 ORDER BY seq LIMIT ?3`

	sqlReady = `UPDATE {p:records} SET stage = 0 WHERE seq IN (SELECT value FROM json_each(?1))`
)

// ServesTurns reports whether Config.FairTopics names the topic. See storekit.TenantTurns.
func (s *Store) ServesTurns(topic string) bool { return s.fair.ServesTurns(topic) }

// takeInTurns leases up to want records, so that the tenants take turns.
func (c *claim) takeInTurns(ctx context.Context, t *txn, topic string, want int) error {
	if served, err := c.admit(ctx, t, topic); err != nil || !served {
		return err
	}
	if c.req.Order == outmill.OrderNone {
		if err := c.unholdAll(ctx, t, topic); err != nil {
			return err
		}
		_, err := c.scanTurns(ctx, t, topic, want)
		return err
	}
	for ask := want; want > 0; ask = max(ask, min(2*ask, minLooks)) {
		back, err := c.lookAtLanes(ctx, t, topic, ask)
		if err != nil {
			return err
		}
		before := len(c.records)
		full, err := c.scanTurns(ctx, t, topic, want)
		if c.req.TenantRoom != nil {
			// Records without room stay ready, and no page counts them.
			c.look(back)
		}
		// See takeByKey.
		if err != nil || full || back < ask || c.looks <= 0 {
			return err
		}
		want -= len(c.records) - before
	}
	return nil
}

// unholdAll makes held records ready for a claim without an order, as many as one transaction
// takes.
func (c *claim) unholdAll(ctx context.Context, t *txn, topic string) error {
	seqs, err := t.seqs(ctx, sqlHeldLine, c.req.Group, topic, c.admits)
	if err != nil {
		return err
	}
	c.again = c.again || len(seqs) == c.admits
	c.admits -= len(seqs)
	if len(seqs) == 0 {
		return nil
	}
	if err := t.openLanes(ctx, seqs); err != nil {
		return err
	}
	_, err = t.exec(ctx, sqlReady, seqList(seqs))
	return err
}

// giveTurns gives turns to records without one, as many as one transaction takes. It returns the
// first record that is left, 0 if there is none.
func (c *claim) giveTurns(ctx context.Context, t *txn, topic string) (unturned int64, err error) {
	most := c.atOnce.Admit(c.req.Limit)
	n, err := t.exec(ctx, sqlGiveTurns, c.req.Group, topic, most)
	if err != nil || n < most {
		return 0, err
	}
	_, err = t.one(ctx, []any{&unturned}, sqlUnturned, c.req.Group, topic)
	c.again = c.again || unturned > 0
	return unturned, err
}

// scanTurns leases up to want of the ready records. It reports whether the claim needs no more
// records of the topic.
func (c *claim) scanTurns(ctx context.Context, t *txn, topic string, want int) (full bool, err error) {
	unturned, err := c.giveTurns(ctx, t, topic)
	if err != nil {
		return false, err
	}
	place := t.s.turns.Begin(c.req.Group, topic)
	line := turnLine{
		keyLine: keyLine{
			OrderedScan: storekit.OrderedScan{
				Policy: c.req.KeyPolicy, Want: want, MaxBytes: c.req.MaxBytes, Bytes: c.bytes, First: len(c.records) == 0, Until: c.until,
				Pauses: t.pauses, Group: c.req.Group, Topic: topic, Unordered: c.req.Order == outmill.OrderNone, Turns: true, Unturned: unturned,
				Rooms: storekit.RoomsOf(c.req, topic, c.records),
			},
			c: c, t: t, topic: topic, states: map[string]storekit.KeyState{},
		},
		place: place, next: place, read: map[string]int64{},
	}
	err = line.serve(ctx)
	t.s.turns.End(c.req.Group, topic, line.end)
	c.again = c.again || line.Again
	return line.Full || line.Taken >= want, err
}

// turnLine serves the tenants of a topic.
type turnLine struct {
	keyLine
	// place is the turn with which the claim began, and next the one with which it goes on.
	place, next string
	wrapped     bool
	// read has the last record that was read of each turn.
	read map[string]int64
	// end is where the next claim begins.
	end string
}

// serve takes an equal share of each tenant, and then fills the claim from those that have more.
func (l *turnLine) serve(ctx context.Context) error {
	var open []string
	for l.Taken < l.Want {
		turns, err := l.more(ctx, l.Rooms.TurnsAtOnce(l.Want-l.Taken))
		if err != nil {
			return err
		}
		if len(turns) == 0 {
			break
		}
		more, goOn, err := l.share(ctx, turns)
		if l.end = l.Place; err != nil || !goOn {
			return err
		}
		open = append(open, more...)
	}
	for len(open) > 0 && l.Taken < l.Want {
		more, goOn, err := l.share(ctx, open)
		if err != nil || !goOn {
			if l.Full {
				l.end = l.Place
			}
			return err
		}
		open = more
	}
	return nil
}

// more returns up to n further turns.
func (l *turnLine) more(ctx context.Context, n int) ([]string, error) {
	turns, err := l.t.texts(ctx, sqlTurnsFrom, l.c.req.Group, l.topic, l.next, n)
	if err != nil {
		return nil, err
	}
	if l.wrapped {
		for i, turn := range turns {
			if turn >= l.place {
				turns = turns[:i]
				break
			}
		}
	}
	if len(turns) == n {
		l.next = storekit.AfterTurn(turns[n-1])
		return turns, nil
	}
	if l.wrapped {
		l.next = l.place
		return turns, nil
	}
	l.wrapped, l.next = true, ""
	rest, err := l.more(ctx, n-len(turns))
	return append(turns, rest...), err
}

// share takes an equal share of the tenants. It returns those that may have more, and whether the
// claim goes on.
func (l *turnLine) share(ctx context.Context, turns []string) (open []string, goOn bool, err error) {
	turns, largest := l.Rooms.With(turns)
	if len(turns) == 0 {
		return nil, true, nil
	}
	share := min(storekit.ShareOf(l.Want-l.Taken, len(turns)), largest)
	page, err := l.page(ctx, turns, share)
	if err != nil {
		return nil, false, err
	}
	counts := map[string]int{}
	for _, r := range page {
		turn := storekit.Turn(r.tenant)
		counts[turn]++
		l.read[turn] = max(l.read[turn], r.seq)
	}
	for _, turn := range turns {
		if counts[turn] == share {
			open = append(open, turn)
		}
	}
	l.turns = turns
	if err := l.decide(ctx, page); err != nil || l.Full {
		return nil, false, err
	}
	return open, l.c.look(len(page)), nil
}

// page reads share records of each turn.
func (l *turnLine) page(ctx context.Context, turns []string, share int) ([]candidate, error) {
	from := make([][2]any, len(turns))
	for i, turn := range turns {
		from[i] = [2]any{turn, l.read[turn]}
	}
	text, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	template := sqlTurnPage
	if l.Unordered {
		template = sqlTurnPageAny
	}
	return list(ctx, l.t, func(rows *sql.Rows, r *candidate) error {
		return rows.Scan(&r.seq, &r.key, &r.stage, &r.due, &r.expires, &r.expiries, &r.size, sqlkit.Text(&r.tenant), &r.behind)
	}, template, l.c.req.Group, l.topic, string(text), share)
}

// readyBefore reports whether a claim that serves turns must not return the held record because a
// ready one is before it in its key.
func (c *claim) readyBefore(ctx context.Context, t *txn, topic, key string, held int64) (before bool, err error) {
	if c.turns {
		_, err = t.one(ctx, []any{&before}, sqlReadyBefore, c.req.Group, topic, key, held)
	}
	return before, err
}
