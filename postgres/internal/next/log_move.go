package next

import (
	"context"

	"github.com/outmill/outmill"
)

// A row moves to the records in one transaction with the end of its life in the log: it is skipped there, or its bit in the batch is
// set. It arrives as the log has it: due at once, or leased with the lease of its batch, and in the group that has the chain now. So
// what becomes of it then is the same statement for all records. If the registrations have changed since the process read them,
// nothing moves.

// logMoving are rows that are to move, by their places, with the ids of their records: see logCopyID.
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
	if err := t.lock(ctx, line); err != nil {
		return nil, err
	}
	if known, err := logValue[bool](ctx, t, "log_stamp", line.stamp); err != nil || !known {
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
