package driver

import (
	"context"
	_ "embed"
	"math/rand/v2"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
)

// The log in one transaction: docs/postgres-log.md says why it is right.

//go:embed log.sql
var logTables string

//go:embed log_claim.sql
var logClaims string

// logSchema creates the log with what its upkeep needs.
var logSchema = logTables + logClaims + segments.Schema

// logLine is a chain of a topic line, as a process knows it.
type logLine struct {
	topic string // the name of the line
	chain int64
	// group has the chain; "" is none, because it waits.
	group string
	begin logMark
	// stamp is that of the history that says so.
	stamp int64
	// masks are those of the ids that its rows have.
	masks logMasks
	// dropping says that a drop still gives back earlier records of the chain: until then nothing of it is read.
	dropping bool
}

// lock is the number of the advisory lock of the chain.
func (l logLine) lock(names *names) int64 {
	return names.lockOf("log", l.topic, strconv.FormatInt(l.chain, 10))
}

// args are what says which cursor it is.
func (l logLine) args(more ...any) []any {
	return append([]any{l.topic, l.chain, l.begin.pos, l.begin.seen}, more...)
}

// logRow is a row of a page.
type logRow struct {
	pos         int64
	late        bool
	id          outmill.WorkItemID
	created     driver.Time
	key, tenant string
	size        int
	// event is the last one that its append knew: see logChains.masks.
	event int64
}

// logPage is what a claim may take, in order. A caller that has no room for all takes the first ones of rows.
type logPage struct {
	logLine
	// stale says that the registrations have changed, so the page is empty.
	stale bool
	seen  string
	// odd says that rows behind the cursor are skipped, and moreLate that there are late rows behind those of the page, of which there are
	// late.
	odd, moreLate bool
	late          int
	rows          []logRow
	// contents are those that the page has brought, by place.
	contents map[int64]driver.Content
	// passes is the place to which the cursor may go, although there is no row: all up to there are skipped. 0 is none.
	passes int64
	// fresh says that the transaction had no number before the page, and last is the last place that it has shown.
	fresh bool
	last  int64
	// claims says that the transaction has the chain's lock, so that it may take rows of the page.
	claims bool
}

// logBatch is what a claim has leased.
type logBatch struct {
	topic           string
	chain, n, token int64
	places          []int64
}

// logLease says who leases until when.
type logLease struct {
	owner, worker string
	until         driver.Time
}

// logTx is the log in a transaction, which must be READ COMMITTED.
type logTx struct {
	pgx.Tx
	names *names
	// place is the last place that the transaction has seen before it got its number; 0 is none.
	place int64
	// stamp is that of the events of this transaction; 0 is none.
	stamp int64
	// segment is where it appends.
	segment int
}

// logValue returns the value of a statement.
func logValue[T any](ctx context.Context, t *logTx, name string, args ...any) (value T, err error) {
	err = t.QueryRow(ctx, t.names.text(name, false), args...).Scan(&value)
	return value, err
}

// lock locks the chain. In a transaction that has locked another chain before, it must be called with the chains in order.
func (t *logTx) lock(ctx context.Context, line logLine) error {
	if _, err := t.Exec(ctx, t.names.text("log_tables", false)); err != nil {
		return err
	}
	_, err := t.Exec(ctx, t.names.text("lock", false), line.lock(t.names))
	return err
}

// page locks the chain, and reads what the group may take, at most want rows.
func (t *logTx) page(ctx context.Context, line logLine, want int) (p logPage, err error) {
	p = logPage{logLine: line}
	if line.dropping || line.group == "" {
		return p, nil
	}
	return t.pageOf(ctx, line, want)
}

// pageOf is page also of a chain that waits.
func (t *logTx) pageOf(ctx context.Context, line logLine, want int) (p logPage, err error) {
	p = logPage{logLine: line}
	if err := t.lock(ctx, line); err != nil {
		return p, err
	}
	rows, err := t.Query(ctx, t.names.text("log_page", false), line.args(want, line.stamp)...)
	if err != nil {
		return p, err
	}
	defer rows.Close()
	p.stale = true
	last, fresh := int64(0), false
	for rows.Next() {
		var r logRow
		var seen *string
		var none bool
		if err := rows.Scan(&r.pos, &r.late, &seen, &none, (*[16]byte)(&r.id), &r.created, &r.key, &r.tenant, &r.size, &r.event); err != nil {
			return p, err
		}
		last = max(last, r.pos)
		switch {
		case seen != nil:
			p.stale, p.seen, p.odd, p.passes, fresh = false, *seen, r.late, int64(r.size), none
			last = max(last, p.passes)
			continue
		case r.late:
			p.late++
		}
		p.rows = append(p.rows, r)
	}
	if fresh {
		t.place = max(t.place, last)
	}
	p.moreLate = p.late == want
	return p, rows.Err()
}

// logFate is what a claim does with a row of a page.
type logFate int

const (
	// logUndecided rows stay to be read.
	logUndecided logFate = iota
	// logTaken rows are leased.
	logTaken
	// logMoved rows are written to the records by the caller, in the same transaction.
	logMoved
)

// take leases rows of the page, and moves the cursor behind all that it has decided about.
func (t *logTx) take(ctx context.Context, p logPage, token int64, lease logLease, decide func(r logRow) logFate) (b logBatch, err error) {
	b = logBatch{topic: p.topic, chain: p.chain, token: token}
	fates := make([]logFate, len(p.rows))
	for i, r := range p.rows {
		fates[i] = decide(r)
	}
	args, places := p.taking(fates, t.place, token, lease)
	if b.places = places; args == nil {
		return b, nil
	}
	b.n, err = logValue[int64](ctx, t, "log_take", args...)
	return b, err
}

// taking are the arguments of log_take, and the places of what is leased. They are nil if nothing is decided.
func (p *logPage) taking(fates []logFate, place, token int64, lease logLease) (args []any, places []int64) {
	upto, late, whole, decided := int64(-1), 0, !p.odd, 0
	places = []int64{}
	for i, r := range p.rows {
		if r.late {
			late++
		}
		if fates[i] != logUndecided {
			decided++
			upto = max(upto, r.pos)
		}
		if fates[i] == logTaken {
			places = append(places, r.pos)
		}
	}
	if decided == 0 {
		return nil, places
	}
	left := []int64{}
	for i, r := range p.rows {
		if r.late || r.pos <= upto {
			whole = whole && fates[i] == logTaken && !r.late
			if fates[i] == logUndecided {
				left = append(left, r.pos)
			}
		}
	}
	return p.args(p.seen, place, upto, places, whole, left, p.cut(late), int64(lease.until), token, lease.owner, lease.worker), places
}

// pass moves the cursor over what is skipped, where a page has found nothing else.
func (t *logTx) pass(ctx context.Context, p logPage) error {
	if p.passes == 0 {
		return nil
	}
	args := p.args(p.seen, t.place, p.passes, []int64{}, true, []int64{}, nil, int64(0), rand.Int64(), "", "")
	_, err := logValue[int64](ctx, t, "log_take", args...)
	return err
}

// cut is the place up to which the caller was given the late rows, of which it has seen n; nil if it was given all. They come first, so
// a caller that was given some of the rows has seen one of them.
func (p *logPage) cut(n int) *int64 {
	if n == p.late && !p.moreLate {
		return nil
	}
	return &p.rows[n-1].pos
}

// settle settles rows of a batch, all if ordinals is nil, and returns those that were open.
func (t *logTx) settle(ctx context.Context, b logBatch, ordinals []int32) (won []int32, err error) {
	if _, err := t.Exec(ctx, t.names.text("log_tables", false)); err != nil {
		return nil, err
	}
	var mask *string
	if ordinals != nil {
		bits := make([]byte, len(b.places))
		for i := range bits {
			bits[i] = '0'
		}
		for _, i := range ordinals {
			bits[i] = '1'
		}
		text := string(bits)
		mask = &text
	}
	bits, err := logValue[string](ctx, t, "log_settle", b.topic, b.chain, b.n, b.token, mask)
	for i := range len(bits) {
		if bits[i] == '1' {
			won = append(won, int32(i))
		}
	}
	return won, err
}

// extend extends the lease of the batch, and reports whether it was in work.
func (t *logTx) extend(ctx context.Context, b logBatch, until driver.Time) (bool, error) {
	if _, err := t.Exec(ctx, t.names.text("log_tables", false)); err != nil {
		return false, err
	}
	return logValue[bool](ctx, t, "log_extend", b.topic, b.chain, b.n, b.token, int64(until))
}

// others returns which of the keys other owners have in work, with one of them.
func (t *logTx) others(ctx context.Context, line logLine, owner string, keys []string) (map[string]string, error) {
	rows, err := t.Query(ctx, t.names.text("log_others", false), line.topic, line.chain, owner, keys)
	if err != nil {
		return nil, err
	}
	others := map[string]string{}
	var key, other string
	_, err = pgx.ForEachRow(rows, []any{&key, &other}, func() error {
		others[key] = other
		return nil
	})
	return others, err
}

// skip takes those of the rows out of the chain that it has not read, for the caller to move or delete, and returns their places. It
// returns none if the registrations have changed.
func (t *logTx) skip(ctx context.Context, line logLine, places []int64) (skipped []int64, err error) {
	if err := t.lock(ctx, line); err != nil {
		return nil, err
	}
	rows, err := t.Query(ctx, t.names.text("log_unread", false), line.args(places, line.stamp)...)
	if err != nil {
		return nil, err
	}
	if skipped, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(skipped) == 0 {
		return nil, err
	}
	_, err = t.Exec(ctx, t.names.text("log_skip", false), line.topic, line.chain, skipped)
	return skipped, err
}

// event locks the history for n events, and returns the number of the first one and the mark of all. What the registrations were
// must be read behind it.
func (t *logTx) event(ctx context.Context, n int) (first int64, mark logMark, err error) {
	if t.stamp == 0 {
		t.stamp = rand.Int64()
	}
	if first, err = logValue[int64](ctx, t, "log_event", n, t.stamp); err != nil {
		return 0, mark, err
	}
	err = t.QueryRow(ctx, t.names.text("log_mark", false)).Scan(&mark.pos, &mark.seen)
	return first, mark, err
}

// append writes rows, in their order.
func (t *logTx) append(ctx context.Context, rows []driver.NewRow) error {
	columns := make([][]string, 11)
	created, payloads := make([]int64, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		created[i], payloads[i] = int64(r.Created), r.Record.Payload
		message := r.Message
		if message == r.ID.String() {
			message = ""
		}
		for n, text := range []string{
			r.ID.String(), r.Name(), r.Key, message, r.Tenant, r.Record.CorrelationID, r.Record.CausationID, r.Record.TraceParent,
			r.Record.TraceState, r.Record.DedupKey, r.Metadata,
		} {
			columns[n] = append(columns[n], text)
		}
	}
	args := []any{created}
	for _, column := range columns {
		args = append(args, column)
	}
	_, err := t.Exec(ctx, t.names.text(appendTo+strconv.Itoa(t.segment), false), append(args, payloads)...)
	return err
}
