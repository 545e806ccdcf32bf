package next

import (
	"context"
	_ "embed"
	"encoding/binary"
	"hash/fnv"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// The log in one transaction: docs/postgres-next.md says why it is right. It is not joined with the rest of the driver yet.

//go:embed log.sql
var logSchema string

// logLineOf is the number of a topic and part: 58 bits of a hash, and the part.
func logLineOf(line driver.Line) int64 {
	const partBits = 6
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(line.Topic))
	return int64(hash.Sum64()<<partBits | uint64(line.Part))
}

// logLine is a chain of a topic line, as a group reads it.
type logLine struct {
	line, chain int64
	group       string
	begin       logMark
	// readings are those that have the group read the chain: one of them must live.
	readings []int64
}

// lock is the number of the advisory lock of the chain.
func (l logLine) lock(names *names) int64 {
	text := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(l.line)), uint64(l.chain))
	return names.lockOf("log", string(text))
}

// args are what says which cursor it is.
func (l logLine) args(more ...any) []any {
	return append([]any{l.line, l.chain, l.begin.pos, l.begin.seen, l.begin.horizon}, more...)
}

// logRow is a row of a page.
type logRow struct {
	pos                int64
	late, odd          bool
	id                 outmill.WorkItemID
	created            driver.Time
	topic, key, tenant string
	size               int
}

// logPage is what a claim may take, in order. place is its cap, seen its snapshot.
type logPage struct {
	logLine
	place int64
	want  int
	seen  string
	rows  []logRow
}

// logBatch is what a claim has leased.
type logBatch struct {
	line, chain, n, token int64
	places                []int64
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
	// place is the last place of the sequence as of a moment at which the transaction had no number.
	place *int64
}

// logValue returns the value of a statement.
func logValue[T any](ctx context.Context, t *logTx, name string, args ...any) (value T, err error) {
	err = t.QueryRow(ctx, t.names.text(name, false), args...).Scan(&value)
	return value, err
}

// readPlace must be called before the transaction writes. A claim calls it after it has locked its first chain.
func (t *logTx) readPlace(ctx context.Context) error {
	place, err := logValue[int64](ctx, t, "log_cap", t.place)
	t.place = &place
	return err
}

// page locks the chain, and reads what the group may take, at most want rows. In a transaction that has locked another chain before, it
// must be called with the chains in order.
func (t *logTx) page(ctx context.Context, line logLine, want int) (p logPage, err error) {
	if _, err := t.Exec(ctx, t.names.text("lock", false), line.lock(t.names)); err != nil {
		return p, err
	}
	if err := t.readPlace(ctx); err != nil {
		return p, err
	}
	p = logPage{logLine: line, place: *t.place, want: want}
	rows, err := t.Query(ctx, t.names.text("log_page", false), line.args(p.place, want, line.readings)...)
	if err != nil {
		return p, err
	}
	p.rows, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r logRow, err error) {
		var id string
		err = row.Scan(&p.seen, &r.pos, &r.late, &r.odd, &id, &r.created, &r.topic, &r.key, &r.tenant, &r.size)
		if err == nil {
			err = r.id.Scan(id)
		}
		return r, err
	})
	return p, err
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
	b = logBatch{line: p.line, chain: p.chain, token: token, places: []int64{}}
	fates := make([]logFate, len(p.rows))
	upto, late, whole, decided := int64(-1), 0, true, 0
	for i, r := range p.rows {
		fates[i] = decide(r)
		if r.late {
			late++
		}
		if fates[i] != logUndecided {
			decided++
			upto = max(upto, r.pos)
		}
		if fates[i] == logTaken {
			b.places = append(b.places, r.pos)
		}
	}
	if decided == 0 {
		return b, nil
	}
	left := []int64{}
	for i, r := range p.rows {
		if r.late || r.pos <= upto {
			whole = whole && fates[i] == logTaken && !r.odd
			if fates[i] == logUndecided {
				left = append(left, r.pos)
			}
		}
	}
	var cut *int64
	if late == p.want {
		cut = &p.rows[late-1].pos
	}
	b.n, err = logValue[int64](ctx, t, "log_take", p.args(p.seen, p.place, upto, b.places, whole, left, cut, int64(lease.until),
		token, p.group, lease.owner, lease.worker)...)
	return b, err
}

// settle settles rows of a batch, all if ordinals is nil, and returns those that were open.
func (t *logTx) settle(ctx context.Context, b logBatch, ordinals []int32) ([]int32, error) {
	return logValue[[]int32](ctx, t, "log_settle", b.line, b.chain, b.n, b.token, ordinals)
}

// skip takes those of the rows out of the chain that it has not read, for the caller to move or delete, and returns their places.
func (t *logTx) skip(ctx context.Context, line logLine, places []int64) (skipped []int64, err error) {
	if _, err := t.Exec(ctx, t.names.text("lock", false), line.lock(t.names)); err != nil {
		return nil, err
	}
	rows, err := t.Query(ctx, t.names.text("log_unread", false), line.args(places)...)
	if err != nil {
		return nil, err
	}
	if skipped, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(skipped) == 0 {
		return nil, err
	}
	_, err = t.Exec(ctx, t.names.text("log_skip", false), line.line, line.chain, skipped)
	return skipped, err
}

// append writes rows, in their order.
func (t *logTx) append(ctx context.Context, rows []driver.NewRow) error {
	columns := make([][]string, 6)
	lines, created, payloads := make([]int64, len(rows)), make([]int64, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		lines[i], created[i], payloads[i] = logLineOf(r.Line), int64(r.Created), r.Record.Payload
		message, extra := r.Message, logExtra(r)
		if message == r.ID.String() {
			message = ""
		}
		for n, text := range []string{r.ID.String(), r.Name(), r.Key, message, extra, r.Metadata} {
			columns[n] = append(columns[n], text)
		}
	}
	args := []any{lines, created, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], payloads}
	_, err := t.Exec(ctx, t.names.text("log_append", false), args...)
	return err
}
