package segments

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// The tables of the chains do not grow for ever. A round goes over all chains, some in a step, and deletes what no claim needs any more:
// batches that are over, skips behind the cursor, all of a chain that has ended, and the cursor of a chain whose line has no row left,
// which then begins at its begin again. Each row of the line that is committed later is behind that.
type round struct {
	active bool
	begun  time.Time
	line   string
	chain  int64
}

// atOnce is the most rows of a table that a statement deletes.
const atOnce = 5000

// tidy goes on with the round, and reports whether there is more of it.
func (k *Keeper) tidy(ctx context.Context) (more bool, err error) {
	r := &k.round
	if !r.active {
		if time.Since(r.begun) < k.config.Tidy {
			return false, nil
		}
		var known bool
		if err := k.log.One(ctx, "tidy_any", &known); err != nil {
			return false, err
		}
		*r = round{active: known, begun: time.Now()}
		if !known {
			return false, nil
		}
	}
	var lines []string
	var chains []int64
	var forget []forgotten
	full := false
	err = k.in(ctx, func(t step) error {
		history, err := k.log.Hold(ctx, t.tx)
		if err != nil {
			return err
		}
		rows, err := t.tx.Query(ctx, t.text("tidy_chains"), r.line, r.chain, k.config.Lines)
		if err != nil {
			return err
		}
		var c forgotten
		_, err = pgx.ForEachRow(rows, []any{&c.line, &c.chain, &c.idle}, func() error {
			lines, chains = append(lines, c.line), append(chains, c.chain)
			if c.idle || history.ended(c.line, c.chain) {
				forget = append(forget, c)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, name := range []string{"tidy_batches", "tidy_skips", "tidy_ranges"} {
			var gone int
			if err := t.tx.QueryRow(ctx, t.text(name), lines, chains, atOnce).Scan(&gone); err != nil {
				return err
			}
			full = full || gone == atOnce
		}
		for _, name := range []string{"tidy_covered", "tidy_joined"} {
			if _, err := t.tx.Exec(ctx, t.text(name), lines, chains); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		// The number is taken behind the snapshot that shows the ranges, so the transaction has none before.
		_, err = k.log.Change(ctx, "tidy_horizon", lines, chains)
	}
	for _, c := range forget {
		if err == nil {
			var left bool
			left, err = k.forget(ctx, c)
			full = full || left
		}
	}
	switch {
	case err != nil || full: // the same ones again
		return err == nil, err
	case len(lines) < k.config.Lines:
		r.active = false
		return false, nil
	}
	r.line, r.chain = lines[len(lines)-1], chains[len(chains)-1]
	return true, nil
}

// forgotten is a chain that has ended, or whose line has no row.
type forgotten struct {
	line  string
	chain int64
	idle  bool
}

// forget deletes what a chain has left, if that is still so.
func (k *Keeper) forget(ctx context.Context, c forgotten) (more bool, err error) {
	err = k.in(ctx, func(t step) error {
		history, err := k.log.Hold(ctx, t.tx)
		if err != nil {
			return err
		}
		// What follows sees what claims have done that had the lock.
		if err := k.log.Lock(ctx, t.tx, c.line, c.chain); err != nil {
			return err
		}
		if !history.ended(c.line, c.chain) {
			var idle bool
			if err := t.tx.QueryRow(ctx, t.text("tidy_idle"), c.line, c.chain).Scan(&idle); err != nil || !idle {
				return err
			}
		}
		var gone int
		err = t.tx.QueryRow(ctx, t.text("tidy_forget"), c.line, c.chain, atOnce).Scan(&gone)
		more = gone == atOnce
		return err
	})
	return more, err
}

// ended reports whether the chain has ended, and no drop goes on that may still give back what it has in work.
func (h History) ended(line string, chain int64) bool {
	if h.Dropping(line) {
		return false
	}
	for _, c := range h.Chains(line) {
		if c.Number == chain {
			return false
		}
	}
	return true
}
