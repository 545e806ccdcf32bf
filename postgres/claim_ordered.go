package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// An advisory lock of the transaction serialises the ordered claims of one topic, so each
// begins after the one before has committed. Settling, appending and the janitor's work do not
// wait for it.

var (
	sqlLock = `SELECT pg_advisory_xact_lock($1::bigint)`

	// sqlAdmit makes due records ready, $3 of those that have been due longest. From then on
	// the place of their append decides their order, and stage 4 is only for leases that have
	// not ended. It returns how many there were, and the last one. It also opens $4 of the
	// lanes that have waited long enough. $1 is the group, $2 the topic. It also returns the
	// counter of the pauses, and asideInOrder.
	sqlAdmit = `WITH due AS MATERIALIZED (SELECT * FROM (
		SELECT * FROM (SELECT ctid AS tid, available_at, seq FROM {p:records}
			WHERE grp = $1::text AND topic = $2::text AND stage = 2 AND available_at <= statement_timestamp()
			ORDER BY available_at, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS waiting
		UNION ALL
		SELECT * FROM (SELECT ctid AS tid, available_at, seq FROM {p:records}
			WHERE grp = $1::text AND topic = $2::text AND stage = 3 AND available_at <= statement_timestamp()
			ORDER BY available_at, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS delayed
		UNION ALL
		SELECT * FROM (SELECT ctid AS tid, available_at, seq FROM {p:records}
			WHERE grp = $1::text AND topic = $2::text AND stage = 4 AND available_at <= statement_timestamp() AND ` + notExpired + `
			ORDER BY available_at, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS leased
		) AS each ORDER BY available_at, seq LIMIT $3::bigint),
admitted AS (
	UPDATE {p:records} AS r SET stage = 0, available_at = NULL, owner = NULL,
		attempts = r.attempts + CASE WHEN r.stage = 4 AND r.expiries >= 2 THEN 1 ELSE 0 END,
		expiries = r.expiries + CASE WHEN r.stage = 4 THEN 1 ELSE 0 END
	WHERE r.ctid = ANY (ARRAY(SELECT tid FROM due)) RETURNING r.key),
opened AS (UPDATE {p:lanes} SET blocked_by = '', until = NULL, paused_by = NULL,
	looks = CASE WHEN until <= statement_timestamp() THEN looks ELSE 0 END
WHERE ctid = ANY (ARRAY(
	SELECT l.ctid FROM (SELECT DISTINCT key FROM admitted WHERE key <> '') AS k
	CROSS JOIN LATERAL (SELECT ctid FROM {p:lanes} WHERE grp = $1::text AND topic = $2::text AND key = k.key LIMIT 1) AS l
	UNION ALL SELECT * FROM (SELECT ctid FROM {p:lanes} WHERE ` + overdue + ` ORDER BY until LIMIT $4::bigint) AS over)))
SELECT m.pauses, ` + asideInOrder(`$5::integer`) + `, coalesce(d.n, 0), d.available_at, coalesce(d.seq, 0) FROM {p:meta} AS m
LEFT JOIN (SELECT count(*) OVER () AS n, available_at, seq FROM due ORDER BY available_at DESC, seq DESC LIMIT 1) AS d ON true
WHERE m.only_row`

	// stateOfKey returns, for the key k.key: the lease of another owner ($3) and its end, the
	// first waiting record and how long it blocks the key, the first held record (with its
	// tenant, unless it has expired), and whether
	// any record is parked. It does not search key by key if the topic has no waiting or held
	// record and the store has no parked one. It skips the owner's own leases one by one: there
	// are no more of them than the owner has in flight.
	stateOfKey = `
	LEFT JOIN LATERAL (SELECT owner, available_at FROM {p:records} WHERE ` + ofKey(`k.key`) + ` AND key <> '' AND stage - 4 = 0 AND owner <>
		$3::text::uuid
		AND (available_at > statement_timestamp() OR ` + notExpired + `) AND k.nth = 1 LIMIT 1) AS other ON true
	LEFT JOIN LATERAL (SELECT seq, least(available_at, expires_at) AS until FROM {p:records} WHERE ` + ofKey(`k.key`) + ` AND key <> ''
		AND stage - 3 = -1 AND ` + notExpired + ` AND k.nth = 1 AND ` +
		anyOf(`{p:records} WHERE `+waitingOfTopic) + ` ORDER BY seq LIMIT 1) AS waiting ON true
	LEFT JOIN LATERAL (SELECT seq, tenant_id, expires_at FROM {p:records} WHERE ` + ofKey(`k.key`) + ` AND stage - 1 = 0 AND k.nth = 1
		AND ` + anyOf(`{p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 1`) + ` ORDER BY seq LIMIT 1) AS held ON true
	LEFT JOIN LATERAL (SELECT true AS yes FROM {p:records} WHERE ` + ofKey(`k.key`) + ` AND parked AND k.nth = 1
		AND ` + anyOf(`{p:records} WHERE parked`) + ` LIMIT 1) AS park ON true`

	stateColumns = `other.owner::text, other.available_at, waiting.seq, waiting.until, held.seq,
		CASE WHEN held.expires_at <= statement_timestamp() THEN NULL ELSE held.tenant_id END, held.expires_at, coalesce(park.yes, false)`

	// allRouted: no due record of the topic $2 waits for a group.
	allRouted = noneOf(`{p:records} WHERE grp IS NULL AND topic = $2::text AND stage = 0`) + `
AND ` + noneOf(`{p:records} WHERE grp IS NULL AND topic = $2::text AND stage = 3 AND available_at <= statement_timestamp()`)

	// recordsOnly: the log was never turned on. A claim that does not know yet that it was must
	// not skip the log's records.
	recordsOnly = `(SELECT NOT logged FROM {p:meta} WHERE only_row)`

	// sqlLine reads the first ready records, with the state of each key at its first record,
	// all in one snapshot. It reads nothing while records of the topic wait for a group.
	sqlLine = `WITH page AS MATERIALIZED (
	` + readyLine(`$4::bigint`) + `),
k AS MATERIALIZED (SELECT *, row_number() OVER (PARTITION BY key ORDER BY seq) AS nth FROM page)
SELECT k.id::text, k.seq, k.key, k.expired, k.expiries, k.size, k.due, k.tenant_id, k.expires_at, k.nth = 1, ` +
		stateColumns + ` FROM k` + stateOfKey + `
WHERE ` + allRouted + ` AND ` + recordsOnly + `
ORDER BY k.seq`

	// sqlTopicLine reads the ready records and those that claims by key have held, up to the
	// first waiting record unless $5. It reads nothing while another owner has a lease.
	sqlTopicLine = `SELECT id::text, seq, key, expired, expiries, size, due, tenant_id, expires_at,
	false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false FROM (
	SELECT * FROM (` + readyLine(`$4::bigint`) + `) AS line
	UNION ALL
	SELECT * FROM (SELECT ` + lineColumns + ` FROM {p:records}
		WHERE grp = $1::text AND topic = $2::text AND stage = 1 ORDER BY seq LIMIT $4::bigint) AS held) AS r
WHERE ($5::boolean OR seq < coalesce((SELECT seq FROM {p:records}
	WHERE ` + waitingOfTopic + ` AND ` + notExpired + ` ORDER BY seq LIMIT 1), 9223372036854775807))
AND ` + noneOf(`{p:records} WHERE grp = $1::text AND topic = $2::text AND stage = 4
	AND owner <> $3::text::uuid AND (available_at > statement_timestamp() OR `+notExpired+`)`) + `
AND ` + allRouted + ` AND ` + recordsOnly + `
ORDER BY seq LIMIT $4::bigint`

	lineColumns = `id, seq, key, coalesce(expires_at <= statement_timestamp(), false) AS expired, expiries, size, greatest(next_at,
		created_at) AS due, tenant_id, expires_at`

	sqlLease = `UPDATE {p:records} AS r SET ` + leaseSet + `
WHERE r.id = ANY ($3::text[]::uuid[]) AND r.stage + 0 IN (0, 1) RETURNING ` + recordColumns + `, false`

	// sqlPassExpired moves expired records out of the ready ones. They stay pending until the
	// janitor makes them dead.
	sqlPassExpired = `UPDATE {p:records} SET stage = 5 WHERE id = ANY ($1::text[]::uuid[]) AND stage + 0 IN (0, 1)`

	sqlParkMet = `WITH gone AS (UPDATE {p:records} SET stage = 7, parked = true, last_error = $2::text
WHERE id = ANY ($1::text[]::uuid[]) AND seq = ANY ($3::bigint[]) AND stage + 0 = 0 RETURNING step)
` + noteDead
)

// readyLine selects the first ready records of the topic, with a turn and without.
func readyLine(limit string) string {
	return `SELECT * FROM (
	SELECT * FROM (SELECT ` + lineColumns + ` FROM {p:records}
		WHERE grp = $1::text AND topic = $2::text AND stage = 0 AND num_nulls(turn) = 1 ORDER BY seq LIMIT ` + limit + `) AS plain
	UNION ALL
	SELECT * FROM (SELECT ` + lineColumns + ` FROM {p:records}
		WHERE grp = $1::text AND topic = $2::text AND stage = 0 AND num_nulls(turn) = 0 ORDER BY seq LIMIT ` + limit + `) AS turned
	) AS ready ORDER BY seq LIMIT ` + limit
}

// scanState reads stateColumns.
type scanState struct {
	other, tenant *string
	waiting, held *int64
}

// columns are where the columns of the state are scanned to.
func (s *scanState) columns(of *storekit.KeyState) []any {
	return []any{&s.other, &of.OtherEnd, &s.waiting, &of.WaitingEnd, &s.held, &s.tenant, &of.HeldExpiry, &of.Parked}
}

func scanRecord(r *storekit.Candidate, scan func(...any) error) error {
	var s scanState
	var tenant *string
	err := scan(append([]any{&r.ID, &r.Seq, &r.Key, &r.Expired, &r.Expiries, &r.Size, &r.Due, &tenant, &r.Expires, &r.First},
		s.columns(&r.State)...)...)
	r.TenantID = textOf(tenant)
	s.into(&r.State)
	return err
}

func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func (s scanState) into(state *storekit.KeyState) {
	state.Other, state.HeldTenant = textOf(s.other), textOf(s.tenant)
	state.Waiting, state.Held = placeOf(s.waiting), placeOf(s.held)
}

func placeOf(seq *int64) int64 {
	if seq == nil {
		return storekit.NoSeq
	}
	return *seq
}

const (
	// minLooks is the minimum for the limit of expired or blocked records that one transaction
	// of a claim skips. Each record counts once.
	minLooks = 1000
	minPage  = 32
)

// line is an ordered claim of one topic, in one transaction.
type line struct {
	storekit.OrderedScan
	c     *claim
	t     *txn
	topic string
	// looks is the number of records that this transaction may still examine.
	looks int
	// notAdmitted says that more records may be due than this transaction makes ready.
	notAdmitted bool
	// leased has the records that are leased so far.
	leased []placed
	// hasParked: records may be steps of joins.
	hasParked bool
	// counter is the counter of the pauses, and asideInOrder whether records that have an order
	// are aside: see aside.go.
	counter      int64
	asideInOrder bool
	// ask is the least size of the next page.
	ask int
	// turns are the tenants that the claim serves in turn.
	turns turnsOf
}

func (c *claim) newLine(t *txn, topic string, want int) *line {
	return &line{
		c: c, t: t, topic: topic, looks: max(minLooks, 10*want), ask: c.ask,
		OrderedScan: storekit.OrderedScan{Policy: c.req.KeyPolicy, Want: want, MaxBytes: c.req.MaxBytes, Bytes: c.bytes,
			First: len(c.records) == 0, Pauses: c.paused.list, Group: c.req.Group, Topic: topic,
			WholeTopic: c.req.Order == outmill.OrderTopic, Unordered: c.req.Order == outmill.OrderNone},
	}
}

// takeByKey leases up to want records, those of each key in their order.
//
// It reads each page from the first ready record again, after it has carried out the decisions
// about the page before, because another transaction may have made earlier records ready.
func (c *claim) takeByKey(ctx context.Context, topic string, want int) error {
	return c.inOrder(ctx, topic, func(ctx context.Context, t *txn) (*line, error) {
		l := c.newLine(t, topic, want)
		page, err := l.begin(ctx)
		for err == nil {
			size := len(page)
			l.Page(page)
			if l.Full || l.Taken == want || size < l.pageSize() || !l.look(size) {
				break
			}
			l.askMore(l.pageSize())
			l.ask = c.ask
			page, err = l.nextPage(ctx)
		}
		return l, err
	})
}

// takeByTopic leases up to want records as if the topic were one key. It needs no lane, because
// the first records show whether the topic is blocked.
func (c *claim) takeByTopic(ctx context.Context, topic string, want int) error {
	return c.inOrder(ctx, topic, func(ctx context.Context, t *txn) (*line, error) {
		l := c.newLine(t, topic, want)
		var page []storekit.Candidate
		err := l.start(ctx, step{
			template: sqlTopicLine,
			args:     []any{c.req.Group, topic, c.req.Owner.String(), want, c.req.KeyPolicy == outmill.KeySkip},
			row:      pageOf(&page),
		})
		if err != nil {
			return nil, err
		}
		served, err := l.heedPauses(ctx)
		if err != nil || !served {
			return l, err
		}
		l.Page(page)
		// There may be more records behind the expired ones.
		c.again = c.again || len(l.Expired) > 0 && !l.Full
		return l, nil
	})
}

// inTurn makes this store's claims of one topic wait for each other in the process. They would
// wait in the database otherwise, each with a connection that others need.
func (c *claim) inTurn(ctx context.Context, topic string, take func() error) error {
	unlock, err := c.s.claiming.Lock(ctx, [2]string{c.req.Group, topic})
	if err != nil {
		return c.s.explain(ctx, "claim", err)
	}
	defer unlock()
	return take()
}

// inOrder runs a claim's transaction on one topic, and adds the records that it leased to the
// claim.
func (c *claim) inOrder(ctx context.Context, topic string, fn func(ctx context.Context, t *txn) (*line, error)) error {
	var done *line
	var counted []outmill.JoinID
	err := c.inTurn(ctx, topic, func() error {
		return c.s.write(ctx, "claim", func(ctx context.Context, t *txn) (err error) {
			if done, err = fn(ctx, t); err != nil {
				return err
			}
			steps := done.settle()
			if done.hasParked {
				steps = append(steps, countSteps(&counted))
			}
			return t.finish(ctx, steps...)
		})
	})
	if err != nil {
		return err
	}
	c.s.hurry(ctx, counted)
	c.over = c.over || done.Over
	if done.Taken > 0 {
		c.ask = 0
	}
	slices.SortFunc(done.leased, done.compare)
	for _, p := range done.leased {
		if p.stage == storekit.StageLeased {
			c.records = append(c.records, p.record)
			c.bytes += p.record.Size()
		}
	}
	return nil
}

func (l *line) lock() step {
	return step{template: sqlLock, args: []any{l.c.s.lockOfTopic(l.c.req.Group, l.topic)}}
}

// admit makes due records ready. If there are more than one transaction takes, the claim sees
// only those that were due before the last one taken.
func (l *line) admit() step {
	most := l.c.s.atOnce.Admit(l.Want)
	return step{
		template: sqlAdmit, args: []any{l.c.req.Group, l.topic, most, l.pageSize(), int(l.c.req.Order)},
		row: func(scan func(...any) error) error {
			var admitted int
			var due *time.Time
			var seq int64
			if err := scan(&l.counter, &l.asideInOrder, &admitted, &due, &seq); err != nil || admitted < most {
				return err
			}
			l.c.again, l.notAdmitted = true, true
			if !l.Turns {
				l.Until = storekit.Moment{Due: *due, Seq: seq}
			}
			return nil
		},
	}
}

// start locks the topic, brings back what has been resumed, makes due records ready, and then
// sends the steps.
func (l *line) start(ctx context.Context, steps ...step) error {
	back := l.bringBack()
	begin := append(append([]step{l.lock()}, back.steps...), l.admit())
	err := l.t.run(ctx, append(begin, steps...)...)
	l.c.again = l.c.again || back.full()
	return err
}

func (l *line) pageSize() int { return max(l.Want, l.ask, minPage) }

func (l *line) pageStep(into *[]storekit.Candidate) step {
	return step{
		template: sqlLine,
		args:     []any{l.c.req.Group, l.topic, l.c.req.Owner.String(), l.pageSize()},
		row:      pageOf(into),
	}
}

func pageOf(into *[]storekit.Candidate) func(scan func(...any) error) error {
	*into = nil
	return func(scan func(...any) error) error {
		var r storekit.Candidate
		if err := scanRecord(&r, scan); err != nil {
			return err
		}
		*into = append(*into, r)
		return nil
	}
}

func (l *line) nextPage(ctx context.Context) (page []storekit.Candidate, err error) {
	steps := append(l.settle(), l.pageStep(&page))
	err = l.t.run(ctx, steps...)
	return page, err
}

// begin makes due records ready, then checks lanes that may no longer be blocked, and reads the
// first page.
func (l *line) begin(ctx context.Context) (page []storekit.Candidate, err error) {
	var lanes []lane
	if err := l.start(ctx, l.lanesStep(&lanes), l.pageStep(&page)); err != nil {
		return nil, err
	}
	if served, err := l.heedPauses(ctx); err != nil || !served {
		return nil, err
	}
	for len(lanes) > 0 {
		looked, done := len(lanes), laneLook{}
		steps, err := l.lookAt(lanes, &done)
		if err != nil {
			return nil, err
		}
		if err := l.t.run(ctx, append(steps, l.lanesStep(&lanes), l.pageStep(&page))...); err != nil {
			return nil, err
		}
		if !l.lookFurther(looked, done) {
			break
		}
	}
	return page, nil
}

// lookFurther reports whether this transaction should check more lanes.
func (l *line) lookFurther(looked int, done laneLook) bool {
	// If records that became ready again cannot be leased (expired, parked), the lanes may have
	// more.
	l.c.again = l.c.again || done.parked > 0 || done.back >= l.Want
	return l.look(looked+done.parked) && done.back < l.Want
}

// look spends n looks, and reports whether any are left.
func (l *line) look(n int) bool {
	l.looks -= n
	l.c.again = l.c.again || l.looks <= 0
	return l.looks > 0
}

// settle carries out the decisions about the page.
func (l *line) settle() []step {
	if l.Unordered {
		return l.leaseDue()
	}
	var steps []step
	if len(l.Expired) > 0 {
		steps = append(steps, step{template: sqlPassExpired, args: []any{idsOf(l.Expired)}})
	}
	if len(l.Parked) > 0 {
		steps = append(steps, step{template: sqlParkMet, args: []any{idsOf(l.Parked), storekit.ParkedError, placesOf(l.Parked)}})
		l.hasParked = true
	}
	if len(l.Leasing) > 0 {
		steps = append(steps, step{
			template: sqlLease,
			args:     []any{l.c.req.Owner.String(), sqlkit.CeilMicros(l.c.req.Lease), idsOf(l.Leasing)},
			row:      add(&l.leased),
		})
	}
	steps = append(steps, l.setAside()...)
	if len(l.Reopen) > 0 {
		steps = append(steps, step{template: sqlOpenLanes, args: []any{l.c.req.Group, l.topic, l.Reopen}})
	}
	steps = append(steps, l.hold()...)
	l.Settled()
	return steps
}

func placesOf(records []storekit.Candidate) []int64 {
	places := make([]int64, len(records))
	for i, r := range records {
		places[i] = r.Seq
	}
	return places
}

func idsOf(records []storekit.Candidate) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}
	return ids
}
