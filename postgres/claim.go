package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// maxClaim is the most records that one claim returns, whatever its limit.
const maxClaim = 100_000

const (
	// leaseSet leases a record to the claimer: $1 is the owner, $2 the lease in microseconds.
	// If the record has expired, leaseSet moves it from the ready records to stage 5 instead;
	// it stays pending until the janitor makes it dead.
	leaseSet = `stage = CASE WHEN r.expires_at <= statement_timestamp() THEN 5 ELSE 4 END,
	available_at = CASE WHEN r.expires_at <= statement_timestamp() THEN NULL
	ELSE statement_timestamp() + $2::bigint * interval '1 microsecond' END,
	owner = CASE WHEN r.expires_at <= statement_timestamp() THEN NULL ELSE $1::text::uuid END,
	claims = r.claims + CASE WHEN r.expires_at <= statement_timestamp() THEN 0 ELSE 1 END,
	attempts = r.attempts + CASE WHEN r.stage = 4 AND r.expiries >= 2 THEN 1 ELSE 0 END,
	expiries = r.expiries + CASE WHEN r.stage = 4 THEN 1 ELSE 0 END`

	// notExpired excludes expired records. It is for ended leases, which stay until they are
	// reaped. There are never more of them than records that were leased at one time.
	notExpired = `(expires_at IS NULL OR expires_at > statement_timestamp())`

	candidate = `ctid AS tid, id, key, seq, coalesce(expires_at <= statement_timestamp(), false) AS expired, size`

	// pausedCandidate has the columns that a comparison with the pauses needs, too.
	pausedCandidate = candidate + `, tenant_id, expires_at`
)

// dueOf selects and locks the records of a topic that have been due longest. It skips records
// that another claim has locked. An ended lease counts as an expiry.
func dueOf(columns, group, topic, limit string) string {
	stage := func(name, due, expiries, where, order string) string {
		return `SELECT * FROM (SELECT ` + columns + `, ` + due + ` AS due, ` + expiries + ` AS expiries FROM {p:records}
			WHERE grp = ` + group + ` AND topic = ` + topic + ` AND ` + where + `
			ORDER BY ` + order + ` LIMIT ` + limit + ` FOR UPDATE SKIP LOCKED) AS ` + name
	}
	return `SELECT * FROM (
		` + stage("line", `greatest(next_at, created_at)`, `expiries`, `stage = 0 AND num_nulls(turn) = 1`, `seq`) + `
		UNION ALL ` + stage("turns", `greatest(next_at, created_at)`, `expiries`, `stage = 0 AND num_nulls(turn) = 0`, `seq`) + `
		UNION ALL ` + stage("held", `greatest(next_at, created_at)`, `expiries`, `stage = 1`, `seq`) + `
		UNION ALL ` + stage("waiting", `available_at`, `expiries`, `stage = 2 AND available_at <= statement_timestamp()`, `available_at, seq`) + `
		UNION ALL ` + stage("delayed", `available_at`, `expiries`, `stage = 3 AND available_at <= statement_timestamp()`, `available_at, seq`) + `
		UNION ALL ` + stage("leased", `available_at`, `expiries + 1`, `stage = 4 AND available_at <= statement_timestamp() AND `+notExpired,
		`available_at`) + `
		) AS each ORDER BY due, seq LIMIT ` + limit
}

var (
	// sqlClaimAny leases the records of each topic that have been due longest: $3 is the group,
	// $4 the topics in the order of their turn, $5 the limit of each topic, $6 the limit of
	// all, $7 the limit in bytes, $8 whether the claim has no record yet. It leases nothing
	// unless $9 is the counter of the pauses.
	//
	// The last condition applies the limit in bytes, and leases a suspect alone.
	sqlClaimAny = `WITH found AS MATERIALIZED (
	SELECT t.turn, c.* FROM unnest($4::text[]) WITH ORDINALITY AS t (topic, turn)
	CROSS JOIN LATERAL (` + dueOf(candidate, `$3::text`, `t.topic`, `$5::bigint`) + `) AS c
	WHERE (SELECT pauses FROM {p:meta} WHERE only_row) = $9::bigint),
counted AS (
	SELECT tid, expired,
		count(*) FILTER (WHERE NOT expired) OVER upto AS nth,
		sum(size) FILTER (WHERE NOT expired) OVER upto AS bytes,
		count(*) FILTER (WHERE NOT expired AND expiries >= 2) OVER upto AS suspects
	FROM found WINDOW upto AS (ORDER BY turn, due, seq))
UPDATE {p:records} AS r SET ` + leaseSet + `
WHERE r.ctid = ANY (ARRAY(SELECT tid FROM counted WHERE expired
	OR nth = 1 AND $8::boolean OR nth <= $6::bigint AND suspects = 0 AND ($7::bigint = 0 OR bytes <= $7::bigint)))
RETURNING ` + recordColumns + `, false`

	// sqlDueOf reads the candidates of a claim that leases them with sqlLeaseDue.
	sqlDueOf = `SELECT id::text, seq, key, expired, expiries, size, due, tenant_id, expires_at FROM (` +
		dueOf(pausedCandidate, `$1::text`, `$2::text`, `$3::bigint`) + `) AS c ORDER BY due, seq`

	sqlLeaseDue = `UPDATE {p:records} AS r SET ` + leaseSet + `
WHERE r.id = ANY ($3::text[]::uuid[]) AND r.stage + 0 BETWEEN 0 AND 4 RETURNING ` + recordColumns + `, false`
)

const sqlLogDue = `SELECT {p:log_due}($1::pg_catalog.text, $2::pg_catalog.text[], $3::pg_catalog.int8[])`

// Claim leases up to req.Limit records, and never more than 100,000. See outmill.Queue. If a
// claim over several topics fails after it has leased some records, it returns these with the
// error.
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
	if _, err := s.hasLog(ctx, operation); err != nil {
		return nil, err
	}
	var c *claim
	paused := pauseView{list: s.pauses.Load()}
	half := storekit.HalfTime(ctx)
	due := func() ([]string, error) {
		if c != nil && c.again && !half.IsZero() && time.Now().After(half) {
			s.notifier.Notify()
			return nil, nil
		}
		return s.dueTopics(ctx, req, &paused)
	}
	var records []*outmill.Record
	err := storekit.ServeDue(&s.turns, &s.busy, req, due, func(topics []string) (int, bool, error) {
		next := &claim{s: s, req: req, paused: paused}
		if c != nil {
			next.lookedAgain, next.ask = c.lookedAgain, c.ask
		}
		c = next
		err := c.serveAll(ctx, paused.served(req.Group, topics))
		records = c.records
		return len(records), c.again, err
	})
	s.logger.Claimed(req, len(records))
	return records, err
}

// dueTopics returns the selected topics that may have something to claim, and the pauses. Records
// of these topics that wait for a group are given to one.
func (s *Store) dueTopics(ctx context.Context, req outmill.ClaimRequest, paused *pauseView) ([]string, error) {
	return storekit.DueTopics(
		func() (due, unrouted []string, err error) { return s.lookForTopics(ctx, req, paused) },
		func(topics outmill.Topics) (int, error) { return s.adoptAll(ctx, "claim", topics) })
}

func (s *Store) lookForTopics(ctx context.Context, req outmill.ClaimRequest, paused *pauseView) (due, unrouted []string, err error) {
	var named []string
	if names, listed := req.Topics.Names(); listed && len(names) <= manyTopics {
		named = storekit.OrEmpty(names)
	}
	match := req.Topics.Matcher()
	many := s.lookAtRest(req)
	// turned: the log was turned on after the store's last check.
	turned := false
	var pauses int64
	var aside bool
	known := map[string]bool{}
	row := func(name *string, isDue, isUnrouted bool, counter *int64) {
		if name == nil {
			turned, aside, pauses = isDue != s.readsLog(), isUnrouted, *counter
			return
		}
		topic := *name
		if !match(topic) {
			return
		}
		if isDue && !known[topic] {
			due = append(due, topic)
		}
		if isUnrouted {
			unrouted = append(unrouted, topic)
		}
	}
	found := func(topic string) bool {
		if match(topic) && !known[topic] {
			due, known[topic] = append(due, topic), true
		}
		return known[topic]
	}
	err = s.read(ctx, "claim", func(ctx context.Context) error {
		due, unrouted = nil, nil
		clear(known)
		// The log is read first, because records move from the log to the records.
		switch {
		case !s.readsLog():
			return s.query(ctx, s.look(req, named, row))
		case named != nil:
			return s.query(ctx, s.lookNamed(req, named, row, func(topic string) { found(topic) }))
		case many.resting:
			return s.query(ctx, s.lookWhileAtRest(req, row, many))
		}
		return s.query(ctx, append(many.steps(match, found), s.look(req, named, row))...)
	})
	if err == nil {
		due, err = s.heedPauses(ctx, req, paused, pauses, aside, due)
	}
	if err == nil && s.readsLog() && named == nil {
		if many.moved() {
			return s.lookForTopics(ctx, req, paused)
		}
		if many.note() && len(due) == 0 {
			s.notifier.Notify() // the next claim continues behind these lines
		}
	}
	if err == nil && turned {
		s.life.CheckAgain()
		return s.lookForTopics(ctx, req, paused)
	}
	return due, unrouted, err
}

// query sends the steps in one round trip, without a transaction.
func (s *Store) query(ctx context.Context, steps ...step) error {
	batch := &pgx.Batch{}
	before := 0
	if slices.ContainsFunc(steps, func(one step) bool { return !one.bare }) {
		batch.Queue(safePath)
		before = 1
	}
	for _, one := range steps {
		batch.Queue(s.sql.text(one.template), one.args...)
	}
	results := s.conns.SendBatch(ctx, batch)
	return closed(results, read(results, before, steps, false))
}

// logDue finds the topics that have something to claim in the log.
func logDue(group string, topics []string, found func(topic string)) step {
	return step{template: sqlLogDue, bare: true, args: []any{group, topics, linesOf(group, topics)}, row: func(scan func(...any) error) error {
		var topic string
		err := scan(&topic)
		found(topic)
		return err
	}}
}

// claim is one claim. It runs a transaction for each topic or, without an order, one for all
// topics.
type claim struct {
	s       *Store
	req     outmill.ClaimRequest
	records []*outmill.Record
	bytes   int
	// over: the claim met a suspect, which must be alone, or a record that does not fit.
	over bool
	// again: the claim skipped so many records that there may be more to claim.
	again bool
	// lookedAgain: the claim was repeated because of records that had only just been committed.
	lookedAgain bool
	paused      pauseView
	// ask is the least size of the next page. It grows while claims meet only paused records.
	ask int
}

// room is the number of records that the claim may still take.
func (c *claim) room() int {
	if c.over {
		return 0
	}
	return c.req.Limit - len(c.records)
}

func (c *claim) taken() int { return len(c.records) }

func (c *claim) serveAll(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return nil
	}
	take := c.takeByKey
	switch {
	case c.req.Order != outmill.OrderTopic && slices.ContainsFunc(topics, c.s.ServesTurns):
		take = c.takeFair
	case c.s.readsLog():
		take = c.takeBoth
	case c.req.Order == outmill.OrderNone && c.paused.parts():
		take = c.takeUnpaused
	case c.req.Order == outmill.OrderNone:
		return c.takeAny(ctx, topics)
	case c.req.Order == outmill.OrderTopic:
		take = c.takeByTopic
	}
	return storekit.ServeTopics(topics, c.req.Limit, c.room, c.taken, func(topic string, want int) error { return take(ctx, topic, want) })
}

// takeAny takes records without an order, those that have been due longest first. Each topic
// gets its share. Topics that have more records then get the shares that other topics did not
// use.
func (c *claim) takeAny(ctx context.Context, topics []string) error {
	share := (c.req.Limit + len(topics) - 1) / len(topics)
	for c.room() > 0 && len(topics) > 0 {
		taken, expired, err := c.takeShare(ctx, topics, min(share, c.room()))
		if err != nil {
			return err
		}
		c.again = c.again || expired > 0
		if taken.records == 0 || share >= c.req.Limit {
			return nil
		}
		topics = slices.DeleteFunc(topics, func(topic string) bool { return taken.of[topic] < share })
		share = c.req.Limit
	}
	return nil
}

type takings struct {
	records int
	of      map[string]int
}

func (c *claim) takeShare(ctx context.Context, topics []string, share int) (taken takings, expired int, err error) {
	bytes := 0
	if c.req.MaxBytes > 0 {
		if bytes = c.req.MaxBytes - c.bytes; bytes <= 0 {
			c.over = true
			return taken, 0, nil
		}
	}
	var found []placed
	err = c.s.writeAll(ctx, "claim", step{
		template: sqlClaimAny,
		args: []any{
			c.req.Owner.String(), sqlkit.CeilMicros(c.req.Lease), c.req.Group, topics, share, c.room(), bytes, len(c.records) == 0,
			counterOf(c.paused.list),
		},
		row: collect(&found),
	})
	if err != nil {
		return taken, 0, err
	}
	taken.of = map[string]int{}
	for _, p := range found {
		taken.of[p.record.Topic]++
	}
	all := len(found)
	found = slices.DeleteFunc(found, func(p placed) bool { return p.stage == storekit.StageExpired })
	taken.records, expired = len(found), all-len(found)
	c.add(found, topics)
	return taken, expired, nil
}

// add adds the records in the order of their topics.
func (c *claim) add(found []placed, topics []string) {
	slices.SortFunc(found, func(a, b placed) int {
		return cmp.Or(
			cmp.Compare(slices.Index(topics, a.record.Topic), slices.Index(topics, b.record.Topic)),
			a.due.Compare(b.due), cmp.Compare(a.seq, b.seq))
	})
	for _, p := range found {
		c.records = append(c.records, p.record)
		c.bytes += p.record.Size()
		c.over = c.over || p.record.Suspect()
	}
}
