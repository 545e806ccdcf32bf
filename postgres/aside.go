package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Pauses of keys and tenants are compared with the records that a claim meets. So that each
// claim need not skip the same paused records again, a claim moves them out of its way, each
// with the number of the pause:
//
//	ready, waiting ──claim meets a paused record──► held (its key is blocked by the pause)   with OrderKey, if the record has a key
//	                                          └───► aside                                    without an order, or without a key
//	held, aside ──a claim sees that the pause with this number is gone──► held, with its key open; or due as before
//
// A row of the log moves to the records first.
//
// Only claims move records, each a limited number in one transaction. Pause and Resume write one
// row, so there is nothing that a crash could leave half done: as long as the pause exists,
// claims set more records aside, and afterwards they bring them back. Numbers of pauses are
// never used again, so a claim that began before Resume and sets records aside after it does no
// harm: the next claim brings them back.
//
// Each transaction of a claim reads the counter of the pauses, in a statement that it needs
// anyway. If it is not the counter of the pauses by which the claim decides, the transaction
// returns nothing, and the claim begins again with the pauses as they are now.
//
// The order of a key holds because its records are held: an ordered claim holds later records of
// a key as long as the key has held ones. Records that are aside have no order. If the readers of
// a group have changed from no order to order, an ordered claim first brings back what has an
// order now: records with a key, or, for whole topics, all of them.

const (
	sqlResumed = `SELECT topic, number FROM {p:resumed}($1::text)`

	// sqlBringBack makes at most $4 records due that are aside for the pauses $3.
	sqlBringBack = `UPDATE {p:records} SET paused_by = NULL, ` + dueAsBefore + ` WHERE ctid = ANY (ARRAY(
	SELECT r.ctid FROM unnest($3::bigint[]) AS k (number) CROSS JOIN LATERAL (SELECT ctid FROM {p:records}
		WHERE grp = $1::text AND topic = $2::text AND stage = -1 AND paused_by = k.number
		ORDER BY seq LIMIT $4::bigint FOR UPDATE SKIP LOCKED) AS r
	LIMIT $4::bigint))`

	// sqlOpenResumed opens at most $4 lanes that the pauses $3 block.
	sqlOpenResumed = `UPDATE {p:lanes} SET blocked_by = '', until = NULL, paused_by = NULL, looks = 0 WHERE ctid = ANY (ARRAY(
	SELECT l.ctid FROM unnest($3::bigint[]) AS k (number) CROSS JOIN LATERAL (SELECT ctid FROM {p:lanes}
		WHERE hashtextextended(grp, 1) = hashtextextended($1::text, 1) AND grp IS NOT DISTINCT FROM $1::text
		AND topic = $2::text AND paused_by = k.number AND paused_by IS NOT NULL LIMIT $4::bigint FOR UPDATE SKIP LOCKED) AS l
	LIMIT $4::bigint))`

	sqlBringBackKeyed = `UPDATE {p:records} SET paused_by = NULL, ` + dueAsBefore + ` WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage + 1 = 0 AND key <> ''
	ORDER BY grp, topic, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED))`

	sqlBringBackAll = `UPDATE {p:records} SET paused_by = NULL, ` + dueAsBefore + ` WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND stage = -1
	ORDER BY grp, topic, paused_by, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED))`

	// sqlSetAside moves the records $1 aside; $2 is an object of id to the number of the pause.
	// An ended lease counts as an expiry. A reader with another order may have leased a record
	// since an ordered claim has read it.
	sqlSetAside = `UPDATE {p:records} AS r SET stage = -1, paused_by = ($2::jsonb ->> r.id::text)::bigint, available_at = NULL, owner = NULL,
	attempts = r.attempts + CASE WHEN r.stage = 4 AND r.expiries >= 2 THEN 1 ELSE 0 END,
	expiries = r.expiries + CASE WHEN r.stage = 4 THEN 1 ELSE 0 END
WHERE r.id = ANY ($1::text[]::uuid[]) AND r.stage + 0 BETWEEN 0 AND 4 AND (r.stage <> 4 OR r.available_at <= statement_timestamp())`
)

// asideInOrder reports whether records of the group $1 and the topic $2 are aside that have a
// place in the given order of claims.
func asideInOrder(order string) string {
	return `CASE ` + order + `
	WHEN 1 THEN ` + anyOf(`{p:records} WHERE grp = $1::text AND topic = $2::text AND stage + 1 = 0 AND key <> ''`) + `
	WHEN 2 THEN ` + anyOf(`{p:records} WHERE grp = $1::text AND topic = $2::text AND stage = -1`) + ` ELSE false END`
}

// pauseView is what a claim knows of the pauses before its transactions begin: the pauses, and
// for topics of its group the numbers of pauses that are gone, and that still keep records aside
// or block keys.
type pauseView struct {
	list    *roles.PauseList
	resumed map[string][]int64
}

// parts reports whether a claim must compare records with the pauses, or bring records back.
func (v pauseView) parts() bool { return v.list.HasParts() || len(v.resumed) > 0 }

// served leaves out the topics that are paused.
func (v pauseView) served(group string, topics []string) []string {
	if v.list.Empty() {
		return topics
	}
	return slices.DeleteFunc(topics, func(topic string) bool { return v.list.Topic(group, topic) })
}

// heedPauses reads the pauses if their counter has changed, and what is to bring back if
// anything of the group is aside. It leaves out the topics that are paused, and adds those in
// which something comes back.
func (s *Store) heedPauses(ctx context.Context, req outmill.ClaimRequest, view *pauseView, counter int64, aside bool,
	due []string) ([]string, error) {
	look := s.lookAtPauses()
	changed := look.known == nil || counter != look.known.Generation()
	*view = pauseView{list: look.known}
	if changed || aside {
		err := s.read(ctx, "claim", func(ctx context.Context) error {
			view.resumed = nil
			var steps []step
			if changed {
				steps = append(steps, look.step())
			}
			if aside {
				steps = append(steps, view.resumedStep(req))
			}
			return s.query(ctx, steps...)
		})
		if err != nil {
			return nil, err
		}
	}
	if changed {
		view.list = look.list()
	}
	for topic := range view.resumed {
		if !slices.Contains(due, topic) {
			due = append(due, topic)
		}
	}
	return view.served(req.Group, due), nil
}

func (v *pauseView) resumedStep(req outmill.ClaimRequest) step {
	match := req.Topics.Matcher()
	return step{template: sqlResumed, args: []any{req.Group}, row: func(scan func(...any) error) error {
		var topic string
		var number int64
		err := scan(&topic, &number)
		if err == nil && match(topic) {
			if v.resumed == nil {
				v.resumed = map[string][]int64{}
			}
			v.resumed[topic] = append(v.resumed[topic], number)
		}
		return err
	}}
}

// bringing counts what a transaction brings back.
type bringing struct {
	steps          []step
	records, lanes int
	most           int
}

// full reports whether there may be more to bring back.
func (b *bringing) full() bool { return b.records >= b.most || b.lanes >= b.most }

// bringBack brings back what was set aside for pauses that are gone, and opens the lanes that
// they block.
func (l *line) bringBack() *bringing {
	b := &bringing{most: l.c.s.atOnce.Admit(l.Want)}
	if numbers := l.c.paused.resumed[l.topic]; len(numbers) > 0 {
		args := []any{l.c.req.Group, l.topic, numbers, b.most}
		b.steps = []step{{template: sqlBringBack, args: args, count: &b.records}, {template: sqlOpenResumed, args: args, count: &b.lanes}}
	}
	return b
}

// heedPauses reports whether the transaction may return records of the topic. It may not if the
// pauses have changed: then the claim looks for due topics again. And it may not while records
// are aside that have an order, which it brings back.
func (l *line) heedPauses(ctx context.Context) (served bool, err error) {
	if l.counter != counterOf(l.Pauses) {
		l.c.again = true
		return false, nil
	}
	if !l.asideInOrder {
		return true, nil
	}
	template := sqlBringBackKeyed
	if l.WholeTopic {
		template = sqlBringBackAll
	}
	l.c.again = true
	return false, l.t.run(ctx, step{template: template, args: []any{l.c.req.Group, l.topic, l.c.s.atOnce.Admit(l.Want)}})
}

// setAside moves paused records aside.
func (l *line) setAside() []step {
	if len(l.Aside) == 0 {
		return nil
	}
	numbers := make(map[string]int64, len(l.Aside))
	for _, r := range l.Aside {
		numbers[r.ID] = r.Pause
	}
	// Ids and numbers always marshal.
	text, _ := json.Marshal(numbers)
	return []step{{template: sqlSetAside, args: []any{idsOf(l.Aside), string(text)}}}
}

// askMore doubles the next page after one without a record to lease, up to the most that one
// transaction looks at. A million paused records would need too many round trips otherwise.
func (l *line) askMore(size int) {
	if l.Taken == 0 && l.Pauses.HasParts() {
		l.c.ask = min(2*size, minLooks)
	}
}

// takeUnpaused is takeAny for one topic while keys or tenants are paused, or when records come
// back.
func (c *claim) takeUnpaused(ctx context.Context, topic string, want int) error {
	return c.inOrder(ctx, topic, func(ctx context.Context, t *txn) (*line, error) {
		l := c.newLine(t, topic, want)
		back := l.bringBack()
		counter := step{template: sqlCounter, row: func(scan func(...any) error) error { return scan(&l.counter) }}
		var page []storekit.Candidate
		steps := append([]step{counter}, back.steps...)
		for {
			ask := max(want, l.ask)
			if err := t.run(ctx, append(steps, l.dueStep(ask, &page))...); err != nil {
				return nil, err
			}
			if served, err := l.heedPauses(ctx); err != nil || !served {
				return l, err
			}
			l.Page(page)
			skipped := len(l.Expired) + len(l.Aside)
			if l.Full || l.Taken == want || skipped == 0 || !l.look(len(page)) {
				break
			}
			l.askMore(ask)
			l.ask = c.ask
			steps = l.settle()
		}
		c.again = c.again || back.full()
		return l, nil
	})
}

const sqlCounter = `SELECT pauses FROM {p:meta} WHERE only_row`

func (l *line) dueStep(limit int, into *[]storekit.Candidate) step {
	*into = nil
	return step{template: sqlDueOf, args: []any{l.c.req.Group, l.topic, limit}, row: func(scan func(...any) error) error {
		var c storekit.Candidate
		err := scanCandidate(&c, scan)
		*into = append(*into, c)
		return err
	}}
}

func scanCandidate(c *storekit.Candidate, scan func(...any) error) error {
	var tenant *string
	err := scan(&c.ID, &c.Seq, &c.Key, &c.Expired, &c.Expiries, &c.Size, &c.Due, &tenant, &c.Expires)
	c.TenantID = textOf(tenant)
	return err
}

// leaseDue leases the chosen candidates of a claim without an order. Expired ones need no lease,
// because nobody may handle them.
func (l *line) leaseDue() []step {
	steps := l.setAside()
	chosen := idsOf(slices.Concat(l.Leasing, l.Expired))
	l.Settled()
	if len(chosen) == 0 {
		return steps
	}
	return append(steps, step{
		template: sqlLeaseDue, args: []any{l.c.req.Owner.String(), sqlkit.CeilMicros(l.c.req.Lease), chosen}, row: add(&l.leased),
	})
}

// compare compares records in the order in which a claim returns them.
func (l *line) compare(a, b placed) int {
	if l.Turns {
		return cmp.Compare(l.turns.taken[a.seq], l.turns.taken[b.seq])
	}
	if l.Unordered {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq))
	}
	return cmp.Compare(a.seq, b.seq)
}
