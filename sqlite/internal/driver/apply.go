package driver

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// standing is what must not have changed since a row was read. See driver.Changes.
type standing struct {
	group  string
	stage  driver.Stage
	wake   driver.Time
	owner  string
	claims int
	step   outmill.WorkItemID
}

func standingOf(r *driver.Row) standing {
	return standing{r.Group, r.Stage, r.Wake, r.Owner, r.Claims, r.Step}
}

const (
	sqlStandings = `SELECT seq, +grp, stage, wake_at, +owner, claims, +step FROM {p:records}
WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlLease is a claim.
	sqlLease = `UPDATE {p:records} SET stage = 4, wake_at = ?2, owner = ?3, worker = ?4, claims = claims + 1, attempts = attempts + ?5,
	expiries = expiries + ?6, under = '' WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlExtend is the extension of leases.
	sqlExtend = `UPDATE {p:records} SET wake_at = ?2 WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlMove is what a claim admits or holds, and what ends a lease. SQLite writes each index of which a column is named
	// here, whether it changes or not. A NULL leaves a column as it is.
	sqlMove = `UPDATE {p:records} SET stage = ?2, wake_at = ?3, next_at = coalesce(?4, next_at), attempts = coalesce(?5, attempts + ?6),
	claims = claims + ?7, expiries = coalesce(?8, expiries + ?9), owner = ?10, worker = ?11, under = ?12,
	last_error = coalesce(?13, last_error), history = iif(?14 = '', history, substr(CAST(?14 || history AS BLOB), 1, 3072))
WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlSettle is sqlMove for the other columns too: what is processed, parked, requeued or given back by a group.
	sqlSettle = `UPDATE {p:records} SET stage = ?2, wake_at = ?3, next_at = coalesce(?4, next_at), attempts = coalesce(?5, attempts + ?6),
	claims = claims + ?7, expiries = coalesce(?8, expiries + ?9), owner = ?10, worker = ?11, under = ?12,
	last_error = coalesce(?13, last_error), history = iif(?14 = '', history, substr(CAST(?14 || history AS BLOB), 1, 3072)),
	expires_at = coalesce(?15, expires_at), parked = ?16, processed_at = ?17, processed_by = ?18, grp = coalesce(?19, grp)
WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlMend is a change of a record that cannot be read: it writes the whole state.
	sqlMend = `UPDATE {p:records} SET stage = ?2, wake_at = ?3, next_at = ?4, expires_at = ?5, attempts = ?6, claims = ?7, expiries = ?8,
	owner = ?9, worker = ?10, under = ?11, parked = ?12, processed_at = ?13, processed_by = ?14, last_error = coalesce(?15, last_error),
	history = iif(?16 = '', history, substr(CAST(?16 || history AS BLOB), 1, 3072)) WHERE seq = ?1`

	// sqlDelete is an ack where processed records do not stay, and a deletion by an operator or the janitor.
	sqlDelete = `DELETE FROM {p:records} WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlAdopt gives records to the first group of their topic.
	sqlAdopt = `UPDATE {p:records} SET grp = ?2 WHERE seq IN (
	SELECT seq FROM {p:records} INDEXED BY {p:unrouted} WHERE grp = '' AND stage IN (0, 3) AND topic = ?1 ORDER BY seq LIMIT ?3)`
)

// Apply writes the changes of the rows that still stand as they were read, and then the notes.
func (t *tx) Apply(ctx context.Context, c driver.Changes) (done driver.Applied, err error) {
	if err := t.learn(ctx, &c); err != nil {
		return done, err
	}
	if err := t.change(ctx, &c, &done); err != nil {
		return done, err
	}
	if err := t.remove(ctx, c.Delete, &done); err != nil {
		return done, err
	}
	return done, t.writeNotes(ctx, &c)
}

var standingNames = columns("seq, grp, stage, wake_at, owner, claims, step")

// learn reads the standing of rows that this transaction has not read itself.
func (t *tx) learn(ctx context.Context, c *driver.Changes) error {
	var seqs []int64
	ask := func(r *driver.Row) {
		if _, known := t.known[r.Seq]; !known {
			seqs = append(seqs, r.Seq)
		}
	}
	for i := range c.Rows {
		ask(&c.Rows[i].Was)
	}
	for i := range c.Delete {
		ask(&c.Delete[i])
	}
	if len(seqs) == 0 {
		return nil
	}
	_, err := list(ctx, t, standingNames, func(v values, _ *struct{}) error {
		seq := v.number(0)
		// A column that cannot be read is as the engine has it: zero.
		t.known[seq] = standing{v.text(1), v.stage(2), v.time(3), v.text(4), v.count(5), outmill.WorkItemID(v.id(6))}
		_ = v.broken()
		return nil
	}, sqlStandings, seqList(len(seqs), func(i int) int64 { return seqs[i] }))
	return err
}

// stands reports whether the row is still the one that the engine has read.
func (t *tx) stands(r *driver.Row, done *driver.Applied) bool {
	if now, exists := t.known[r.Seq]; exists && now == standingOf(r) {
		return true
	}
	if done.Lost == nil {
		done.Lost = map[outmill.WorkItemID]bool{}
	}
	done.Lost[r.ID] = true
	return false
}

// move is how a row changes: rows that change in the same way are written by one statement. Counters are
// differences, except that they may become 0.
type move struct {
	stage                          driver.Stage
	wake                           driver.Time
	next, expires                  optional
	attempts, claims, expiries     int
	noAttempts, noExpiries, parked bool
	owner, worker, under           string
	hasError, unroute              bool
	// settles says that sqlMove is not enough.
	settles    bool
	err, tried string
	processed  driver.Time
	by         string
}

// optional is a new value, if it is set.
type optional struct {
	set   bool
	value driver.Time
}

func changed(was, now driver.Time) optional {
	if was == now {
		return optional{}
	}
	return optional{true, now}
}

func (o optional) arg() any {
	if !o.set {
		return nil
	}
	return int64(o.value)
}

func moveOf(c *driver.Change) move {
	was, now := &c.Was, &c.Now
	m := move{stage: now.Stage, wake: now.Wake, next: changed(was.Next, now.Next), expires: changed(was.Expires, now.Expires),
		attempts: now.Attempts - was.Attempts, claims: now.Claims - was.Claims, expiries: now.Expiries - was.Expiries,
		owner: now.Owner, worker: now.Worker, under: now.Under, tried: now.Tried, parked: now.Parked,
		processed: now.Processed, by: now.By, unroute: now.Group != was.Group}
	m.settles = m.expires.set || m.unroute || now.Parked != was.Parked || now.Processed != was.Processed || now.By != was.By
	if now.Attempts == 0 && was.Attempts != 0 {
		m.noAttempts, m.attempts = true, 0
	}
	if now.Expiries == 0 && was.Expiries != 0 {
		m.noExpiries, m.expiries = true, 0
	}
	if now.Error != nil {
		m.hasError, m.err = true, *now.Error
	}
	return m
}

// isLease reports whether a claim makes the move.
func (m move) isLease() bool {
	rest := m
	rest.stage, rest.wake, rest.owner, rest.worker, rest.claims, rest.attempts, rest.expiries = 0, 0, "", "", 0, 0, 0
	return m.stage == driver.Leased && m.claims == 1 && rest == move{}
}

// change writes changed rows.
func (t *tx) change(ctx context.Context, c *driver.Changes, done *driver.Applied) error {
	moves, order := map[move][]int64{}, []move(nil)
	for i := range c.Rows {
		r := &c.Rows[i]
		if !t.stands(&r.Was, done) {
			continue
		}
		t.known[r.Was.Seq] = standingOf(&r.Now)
		if r.Was.Broken != "" {
			if err := t.mend(ctx, &r.Now); err != nil {
				return err
			}
			continue
		}
		t.state.Unrouted = t.state.Unrouted || r.Now.Group == ""
		m := moveOf(r)
		seqs, known := moves[m]
		if !known {
			order = append(order, m)
		}
		moves[m] = append(seqs, r.Was.Seq)
	}
	for _, m := range order {
		seqs := moves[m]
		if err := t.move(ctx, m, seqList(len(seqs), func(i int) int64 { return seqs[i] })); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) move(ctx context.Context, m move, seqs string) error {
	switch {
	case m.isLease():
		return t.exec(ctx, sqlLease, seqs, int64(m.wake), m.owner, m.worker, m.attempts, m.expiries)
	case m == move{stage: driver.Leased, wake: m.wake, owner: m.owner, worker: m.worker}:
		return t.exec(ctx, sqlExtend, seqs, int64(m.wake))
	}
	args := []any{
		seqs, int64(m.stage), int64(m.wake), m.next.arg(), zeroIf(m.noAttempts), m.attempts, m.claims, zeroIf(m.noExpiries), m.expiries,
		m.owner, m.worker, m.under, textIf(m.hasError, m.err), m.tried,
	}
	if !m.settles {
		return t.exec(ctx, sqlMove, args...)
	}
	return t.exec(ctx, sqlSettle, append(args, m.expires.arg(), m.parked, int64(m.processed), m.by, textIf(m.unroute, ""))...)
}

// mend writes the state of a row that could not be read.
func (t *tx) mend(ctx context.Context, r *driver.Row) error {
	var text any
	if r.Error != nil {
		text = *r.Error
	}
	return t.exec(ctx, sqlMend, r.Seq, int64(r.Stage), int64(r.Wake), int64(r.Next), int64(r.Expires), r.Attempts, r.Claims, r.Expiries,
		r.Owner, r.Worker, r.Under, r.Parked, int64(r.Processed), r.By, text, r.Tried)
}

func zeroIf(is bool) any {
	if !is {
		return nil
	}
	return 0
}

func textIf(is bool, text string) any {
	if !is {
		return nil
	}
	return text
}

// remove deletes rows.
func (t *tx) remove(ctx context.Context, rows []driver.Row, done *driver.Applied) error {
	seqs := make([]int64, 0, len(rows))
	for i := range rows {
		if t.stands(&rows[i], done) {
			seqs = append(seqs, rows[i].Seq)
			delete(t.known, rows[i].Seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	return t.exec(ctx, sqlDelete, seqList(len(seqs), func(i int) int64 { return seqs[i] }))
}

// Adopt gives rows to a group. Their standing has to be read again.
func (t *tx) Adopt(ctx context.Context, topic, group string, limit int) (int, error) {
	clear(t.known)
	return t.changed(ctx, sqlAdopt, topic, group, limit)
}
