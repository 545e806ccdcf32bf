package segments

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Adapt makes the log one of this server, if its transaction numbers are those of another one: after a dump was restored here, or copied by
// another program. All transactions whose rows it has were committed there. It must come before the first claim of a process, and before
// the upkeep; it reports whether it has changed something. Where it fails although the log is of another server, the error is ErrOther,
// too. A copy of the disk is not noticed, and need not be: it has the numbers of its server.
func (k *Keeper) Adapt(ctx context.Context) (changed bool, err error) {
	var ours bool
	look := func(t step) error { return t.tx.QueryRow(ctx, t.text("cluster_now")).Scan(&ours) }
	if err := k.in(ctx, look); err != nil || ours {
		return false, err
	}
	err = k.in(ctx, func(t step) error {
		history, err := k.log.Hold(ctx, t.tx)
		if err != nil {
			return err
		}
		if _, err := t.tx.Exec(ctx, t.text("cluster_alone")); err != nil {
			return err
		}
		// Another process may have done it while this one waited.
		if err := look(t); err != nil || ours {
			return err
		}
		if err := t.adapt(ctx, history); err != nil {
			return err
		}
		changed = true
		_, err = t.tx.Exec(ctx, t.text("cluster_set"))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrOther, err)
	}
	return changed, nil
}

// ErrOther says that the numbers of the log are those of another server.
var ErrOther = errors.New("the log was restored from another server, and is not one of this server yet")

func (t step) adapt(ctx context.Context, history History) error {
	rows, err := t.tx.Query(ctx, t.text("cluster_lines"))
	if err != nil {
		return err
	}
	var those columns
	var line string
	var last, place int64
	_, err = pgx.ForEachRow(rows, []any{&line, &last, &place}, func() error {
		for _, c := range history.Chains(line) {
			those.add(line, c, false)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case last > place:
		return &BehindError{Place: place, Last: last}
	}
	_, err = t.tx.Exec(ctx, t.text("cluster_adapt"), those.lines, those.numbers, those.places, those.seen)
	return err
}

// BehindError says that the sequence of the places was set back, or not copied with the tables: later rows would have places that claims
// have passed.
type BehindError struct{ Place, Last int64 }

func (e *BehindError) Error() string {
	return fmt.Sprintf("the sequence of the table records is at %d, and the log has a row at %d: set the sequence to that with setval",
		e.Place, e.Last)
}
