package driver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
	"github.com/outmill/outmill/storekit"
)

// Maintain keeps the log small: it has appends write to another segment if one is full, truncates segments of which nothing is needed, and
// deletes what chains no longer need, in bounded steps. One process of all works at a time. A role without the rights for it leaves it to
// others, and tries again after barredFor. A process that has found the store before asks nothing where there is nothing to do. See
// driver.Maintainer.
func (d *Driver) Maintain(ctx context.Context) (more bool, err error) {
	if !d.log.pace.due(time.Now()) {
		if d.last.Load() != nil {
			return false, ctx.Err()
		}
		return false, d.View(ctx, driver.Begin{}, func(driver.Tx) error { return nil })
	}
	if more, err = d.log.keeper.Maintain(ctx); code(err) == codeNoRight {
		d.log.pace.bar()
		return false, nil
	}
	d.log.pace.did(more && err == nil)
	return more, err
}

// adapt has the log be one of this server before the first transaction of the process. See segments.Keeper. A process without the rights
// for that waits for one that has them, but for its appends: their numbers are those of this server.
func (d *Driver) adapt(ctx context.Context, appends bool) error {
	l := &d.log
	if l.adapted.Load() {
		return nil
	}
	l.adapting.Lock()
	defer l.adapting.Unlock()
	if l.adapted.Load() {
		return nil
	}
	_, err := l.keeper.Adapt(ctx)
	if errors.Is(err, segments.ErrOther) && appends && code(err) == codeNoRight {
		return nil
	}
	switch code(err) {
	case codeNoTable, codeNoColumn: // the transaction says what is missing
		return nil
	case codeReadOnly: // a standby, say: it claims nothing, and may become the primary
		return nil
	}
	l.adapted.Store(err == nil)
	return err
}

// pace says when there may be upkeep to do: a process that does not use the log looks seldom, so that an idle database stays idle.
type pace struct {
	used atomic.Bool
	mu   sync.Mutex
	next time.Time
	// barred is until when a role that lacks rights tries nothing: the server logs each refusal.
	barred time.Time
}

const (
	// seldom is how often the upkeep looks at a log that the process does not use. A dump that waits for a lock is seen by looks that are no
	// further apart: see segment_heeded.
	seldom = 30 * time.Second
	// barredFor is how long it takes at most until a process notices that its role has got the rights.
	barredFor = 10 * time.Minute
)

func (p *pace) due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := p.used.Swap(false)
	return !now.Before(p.barred) && (used || !now.Before(p.next))
}

// bar says that the role lacks rights.
func (p *pace) bar() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.barred = time.Now().Add(barredFor)
}

// did says whether there is more to do at once.
func (p *pace) did(more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next = time.Now(); !more {
		p.next = p.next.Add(seldom)
	}
}

// upkeepTx is a transaction of the upkeep on a connection of the pool.
type upkeepTx struct {
	pgx.Tx
	own *ownTx
}

// beginUpkeep begins a READ COMMITTED transaction.
func (d *Driver) beginUpkeep(ctx context.Context) (pgx.Tx, error) {
	own, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := own.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		own.end(ctx, err)
		return nil, err
	}
	return &upkeepTx{Tx: tx, own: own}, nil
}

// Commit also returns the connection to the pool.
func (t *upkeepTx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	t.end(ctx, err)
	return err
}

// Rollback returns the connection to the pool if nothing else has.
func (t *upkeepTx) Rollback(ctx context.Context) error {
	t.end(ctx, nil)
	return nil
}

func (t *upkeepTx) end(ctx context.Context, err error) {
	if t.own != nil {
		t.own.end(ctx, err)
		t.own = nil
	}
}

// changeUpkeep is one statement in a READ COMMITTED transaction, in one round trip.
func (d *Driver) changeUpkeep(ctx context.Context, text string, args []any) (changed int64, err error) {
	err = d.alone(ctx, true, func(t *tx) {
		t.addStep(step{text: text, args: args, done: func(n int) error {
			changed = int64(n)
			return nil
		}})
	})
	return changed, err
}

// readUpkeep reads one row. Without a transaction the settings hold for the statement that is sent with them.
func (d *Driver) readUpkeep(ctx context.Context, text string, into []any) (err error) {
	own, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { own.end(ctx, err) }()
	t := &tx{d: d, to: onPgx{own.conn}}
	t.add("settings", []any{true}, nil)
	t.addStep(step{text: text, row: func(scan scan) error { return scan(into...) }, done: func(n int) error {
		if n == 0 {
			return pgx.ErrNoRows
		}
		return nil
	}})
	return t.flush(ctx)
}

// upkeepLog is the log as its upkeep sees it: see package segments.
type upkeepLog struct {
	names  *names
	begin  func(ctx context.Context) (pgx.Tx, error)
	change func(ctx context.Context, text string, args []any) (int64, error)
	read   func(ctx context.Context, text string, into []any) error
	log    *storekit.Log
}

var _ segments.Log = upkeepLog{}

var errSegmentsKept = errors.New("a group has not read their records yet, or a transaction that has written to them is open, or was " +
	"prepared and forgotten: end what is old in pg_stat_activity and pg_prepared_xacts")

// Grows logs that the log grows, because no other message shows that something keeps the other segments.
func (l upkeepLog) Grows(bytes int64) {
	l.log.Error("The log grows, because neither of the other two segments can be emptied", errSegmentsKept,
		watermill.LogFields{"bytes": bytes})
}

// Begin begins a READ COMMITTED transaction with the driver's settings.
func (l upkeepLog) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = tx.Exec(ctx, l.names.text("settings", false), true); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return tx, nil
}

// Change runs one statement in a transaction of its own.
func (l upkeepLog) Change(ctx context.Context, name string, args ...any) (int64, error) {
	return l.change(ctx, l.Text(name), args)
}

// One reads one row.
func (l upkeepLog) One(ctx context.Context, name string, into ...any) error {
	return l.read(ctx, l.Text(name), into)
}

// Text returns a statement by its name.
func (l upkeepLog) Text(name string) string { return l.names.text(name, false) }

// hold keeps the registrations as they are until the end of the transaction, and returns them with the time.
func (l upkeepLog) hold(ctx context.Context, tx pgx.Tx) (h *logHistory, now driver.Time, err error) {
	h = &logHistory{}
	if err := tx.QueryRow(ctx, l.Text("log_hold")).Scan(&now); err != nil {
		return nil, 0, err
	}
	// A statement of its own, behind the lock.
	rows, err := tx.Query(ctx, l.Text("log_history"))
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := h.read(rows.Scan); err != nil {
			return nil, 0, err
		}
	}
	return h, now, rows.Err()
}

// Hold is hold, with the chains of each line.
func (l upkeepLog) Hold(ctx context.Context, tx pgx.Tx) (segments.History, error) {
	h, _, err := l.hold(ctx, tx)
	if err != nil {
		return segments.History{}, err
	}
	return segments.History{Chains: h.living, Dropping: func(line string) bool {
		topic, _ := storekit.TopicOfLine(line)
		return slices.ContainsFunc(h.readings, func(r logReading) bool { return r.dropping && r.topics.Match(topic) })
	}}, nil
}

// living are the chains of a line that somebody has, the one that waits, and those that groups get that hold until then.
func (h *logHistory) living(line string) (living []segments.Chain) {
	topic, _ := storekit.TopicOfLine(line)
	chains := h.chains(topic)
	for _, chain := range slices.Sorted(maps.Keys(chains.names())) {
		begin := chains.beginOf(chain)
		living = append(living, segments.Chain{Number: chain, BeginPos: begin.pos, BeginSeen: begin.seen})
	}
	return living
}

// Lock locks the tables and a chain.
func (l upkeepLog) Lock(ctx context.Context, tx pgx.Tx, line string, chain int64) error {
	return (&logTx{Tx: tx, names: l.names}).lock(ctx, logLine{topic: line, chain: chain})
}

const (
	// moveRows and moveBytes limit what one move takes of the rows that a chain has not read, and moveBatches the batches.
	moveRows    = 2000
	moveBytes   = 16 << 20
	moveBatches = 100
)

// Move moves rows of a chain to the records, in their order: those of batches whose leases have ended, and then some that are not read. The
// cursor passes these, so no skip is left. What waits goes to the records without a group.
func (l upkeepLog) Move(ctx context.Context, tx pgx.Tx, name string, chain int64) (moved int, err error) {
	h, now, err := l.hold(ctx, tx)
	if err != nil {
		return 0, err
	}
	line, known := h.lineOf(name, chain)
	if !known || line.dropping {
		return 0, nil
	}
	t := &logTx{Tx: tx, names: l.names}
	if moved, err = t.moveEnded(ctx, *line, now, moveBatches); err != nil || moved > 0 {
		return moved, err
	}
	p, err := t.pageOf(ctx, *line, moveRows)
	if err != nil {
		return 0, err
	}
	if p.passes > 0 {
		return 1, t.pass(ctx, p)
	}
	bytes, rows, ids := 0, []int64{}, logMoving{}
	for i, r := range p.rows {
		if bytes += r.size; i > 0 && bytes > moveBytes {
			p.rows = p.rows[:i]
			break
		}
		rows = append(rows, r.pos)
		ids[r.pos] = line.masks.id(chain, r.id, r.event)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	if _, err := t.take(ctx, p, 0, logLease{}, func(logRow) logFate { return logMoved }); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, l.Text("log_move_unread"), line.topic, rows, ids.of(rows), line.group)
	return len(rows), err
}
