package next

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/next/internal/segments"
	"github.com/outmill/outmill/storekit"
)

// upkeepLog is the log as its upkeep sees it: see package segments.
type upkeepLog struct {
	names *names
	begin func(ctx context.Context) (pgx.Tx, error)
}

var _ segments.Log = upkeepLog{}

// Begin begins a READ COMMITTED transaction with the driver's settings.
func (l upkeepLog) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, l.names.text("settings", false), true)
	return tx, err
}

// Text returns a statement by its name.
func (l upkeepLog) Text(name string) string { return l.names.text(name, false) }

// logHeld are the registrations that a transaction has locked.
type logHeld struct {
	readings []logReading
	stamp    int64
	now      driver.Time
}

// hold keeps the registrations as they are until the end of the transaction.
func (l upkeepLog) hold(ctx context.Context, tx pgx.Tx) (held logHeld, err error) {
	if err := tx.QueryRow(ctx, l.Text("log_hold")).Scan(&held.stamp, &held.now); err != nil {
		return held, err
	}
	rows, err := tx.Query(ctx, l.Text("log_readings"))
	if err != nil {
		return held, err
	}
	held.readings, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r logReading, err error) {
		var topics []byte
		err = row.Scan(&r.number, &r.group, &topics, &r.takes, &r.ended, &r.swept, &r.dropping,
			&r.begin.pos, &r.begin.seen, &r.end.pos, &r.end.seen)
		if err != nil {
			return r, err
		}
		return r, json.Unmarshal(topics, &r.topics)
	})
	return held, err
}

// Hold is hold, with the chains of each line.
func (l upkeepLog) Hold(ctx context.Context, tx pgx.Tx) (segments.History, error) {
	held, err := l.hold(ctx, tx)
	if err != nil {
		return segments.History{}, err
	}
	known := map[string][]segments.Chain{}
	chainsOf := func(line string) []segments.Chain {
		topic, _ := storekit.TopicOfLine(line)
		if chains, ok := known[topic]; ok {
			return chains
		}
		c := logChainsOf(held.readings, topic)
		numbers := map[int64]bool{c.waiting: true}
		for _, chain := range c.of {
			numbers[chain] = true
		}
		delete(numbers, noChain)
		chains := []segments.Chain{}
		for number := range numbers {
			begin := logChainBegin(held.readings, number)
			chains = append(chains, segments.Chain{Number: number, BeginPos: begin.pos, BeginSeen: begin.seen})
		}
		known[topic] = chains
		return chains
	}
	dropping := func(line string) bool {
		topic, _ := storekit.TopicOfLine(line)
		return slices.ContainsFunc(held.readings, func(r logReading) bool { return r.dropping && r.topics.Match(topic) })
	}
	return segments.History{Chains: chainsOf, Dropping: dropping}, nil
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
	held, err := l.hold(ctx, tx)
	if err != nil {
		return 0, err
	}
	line, known := logLineOf(held.readings, held.stamp, name, chain)
	if !known || line.dropping {
		return 0, nil
	}
	t := &logTx{Tx: tx, names: l.names}
	if moved, err = t.moveEnded(ctx, line, held.now, moveBatches); err != nil || moved > 0 {
		return moved, err
	}
	p, err := t.pageOf(ctx, line, moveRows)
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
