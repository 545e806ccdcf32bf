package driver

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// A row moves to the records in one transaction with the end of its life in the log: it is skipped there, or its bit in the batch is
// set. It arrives as the log has it: due at once, or leased with the lease of its batch, and in the group that has the chain now. So
// what becomes of it then is the same statement for all records. If the registrations have changed since the process read them,
// nothing moves.

// logMoving are rows that are to move, by their places, with the ids of their records: see logMasks.
type logMoving map[int64]outmill.WorkItemID

// of returns the places with their ids.
func (m logMoving) of(places []int64) (ids []string) {
	for _, pos := range places {
		ids = append(ids, m[pos].String())
	}
	return ids
}

// moveUnread moves those of the rows that the chain has not read, and returns their places.
func (t *logTx) moveUnread(ctx context.Context, line logLine, rows logMoving) (moved []int64, err error) {
	places := make([]int64, 0, len(rows))
	for pos := range rows {
		places = append(places, pos)
	}
	if moved, err = t.skip(ctx, line, places); err != nil || len(moved) == 0 {
		return nil, err
	}
	_, err = t.Exec(ctx, t.names.text("log_move_unread", false), line.topic, moved, rows.of(moved), line.group)
	return moved, err
}

// moveLeased moves those of the rows of the batch that are neither settled nor moved, and returns their places. line is that of the batch.
func (t *logTx) moveLeased(ctx context.Context, line logLine, b logBatch, rows logMoving) (moved []int64, err error) {
	ordinals := []int32{}
	for i, pos := range b.places {
		if _, moves := rows[pos]; moves {
			ordinals = append(ordinals, int32(i))
		}
	}
	if known, err := t.lockKnown(ctx, line); err != nil || !known {
		return nil, err
	}
	won, err := t.settle(ctx, b, ordinals)
	if err != nil || len(won) == 0 {
		return nil, err
	}
	for _, i := range won {
		moved = append(moved, b.places[i])
	}
	_, err = t.Exec(ctx, t.names.text("log_move_leased", false), b.topic, b.chain, b.n, b.token, moved, rows.of(moved), line.group)
	return moved, err
}

// lockKnown locks the chain, and reports whether the registrations are still those that the process knows.
func (t *logTx) lockKnown(ctx context.Context, line logLine) (bool, error) {
	if err := t.lock(ctx, line); err != nil {
		return false, err
	}
	return logValue[bool](ctx, t, "log_stamp", line.stamp)
}

// moveEnded moves the rows of up to limit batches whose leases have ended at the time, and returns how many rows. They arrive with leases
// that have ended, so the claim goes on with them as with any record. It comes before the first search of the claim: no record is
// locked before a batch.
func (t *logTx) moveEnded(ctx context.Context, line logLine, now driver.Time, limit int) (moved int, err error) {
	if known, err := t.lockKnown(ctx, line); err != nil || !known {
		return 0, err
	}
	rows, err := t.Query(ctx, t.names.text("log_ended", false), line.topic, line.chain, int64(now))
	if err != nil {
		return 0, err
	}
	var batches []logBatch
	all := logMoving{}
	var n, token, pos, event int64
	var ordinal, size int
	var id outmill.WorkItemID
	_, err = pgx.ForEachRow(rows, []any{&n, &token, &size, &ordinal, &pos, (*[16]byte)(&id), &event}, func() error {
		if len(batches) == 0 || batches[len(batches)-1].token != token {
			// The places of rows that are done stay 0.
			batches = append(batches, logBatch{topic: line.topic, chain: line.chain, n: n, token: token, places: make([]int64, size)})
		}
		batches[len(batches)-1].places[ordinal] = pos
		all[pos] = line.masks.id(line.chain, id, event)
		return nil
	})
	for _, b := range batches[:min(len(batches), limit)] {
		if err != nil {
			break
		}
		var places []int64
		places, err = t.moveLeased(ctx, line, b, all)
		moved += len(places)
	}
	return moved, err
}
