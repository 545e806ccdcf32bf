package segments

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// A segment that is not written to is needed by no chain in the end, and a chain that does not need it stays so, unless a process that has
// not heard of the rotation still appends to it. So the search for a chain that needs it goes on where it found one the last time. Before
// the truncation all lines are searched once more, while nobody can write to the segment and no registration begins:
//
//	needed ──all read and settled──► retired ──no older snapshot is heeded──► truncated
//	                                   │ ▲
//	                                   └─┘ somebody has written to it since: it is retired again
//
// Each arrow is one transaction under SHARE, for which claims and appends to other segments do not wait. TRUNCATE heeds no snapshot, and a
// dump takes its own before it locks the tables: the note has it find either the rows or, in the batches, that they are done.
type look struct {
	// after is the line behind which the search goes on.
	after string
	// line and chain need the segment, if needed.
	line   string
	chain  int64
	needed bool
	// last is the place of the last row, and ended says that there are no more lines.
	last      int64
	ended     bool
	more      bool
	truncated bool
}

// empty truncates a segment that no chain needs, or goes on with the search. If old, it moves rows of the chain that needs it.
func (k *Keeper) empty(ctx context.Context, segment int, old bool) (found look, err error) {
	if !k.refusals[segment].over() {
		return look{}, nil
	}
	// The search comes first without a lock, because others would have to wait for it.
	err = k.in(ctx, func(t step) error {
		t.segment = segment
		history, err := k.log.Hold(ctx, t.tx)
		if err != nil {
			return err
		}
		found, err = t.search(ctx, history, k.looks[segment].after)
		return err
	})
	switch {
	case err != nil:
		return found, err
	case found.needed:
		// The next search begins at that line.
		found.more = false
		if old {
			found.more, err = k.move(ctx, found)
		}
		return found, err
	case !found.ended:
		k.looks[segment].after = found.after
		found.more = true
		return found, nil
	}
	k.looks[segment].after = ""
	found, err = k.truncate(ctx, segment)
	if errors.Is(err, errRefused) {
		k.refusals[segment].more()
		return look{}, nil
	}
	if err == nil {
		k.refusals[segment].none()
	}
	return found, err
}

// move has rows of the chain that needs a segment go to the records.
func (k *Keeper) move(ctx context.Context, found look) (more bool, err error) {
	err = k.in(ctx, func(t step) error {
		moved, err := k.log.Move(ctx, t.tx, found.line, found.chain)
		more = moved > 0
		return err
	})
	return more, err
}

// errRefused says that somebody uses the segment.
var errRefused = errors.New("another transaction uses the segment")

func (k *Keeper) truncate(ctx context.Context, segment int) (found look, err error) {
	err = k.in(ctx, func(t step) error {
		t.segment = segment
		history, err := k.log.Hold(ctx, t.tx)
		if err != nil {
			return err
		}
		if stopped, err := value[bool](ctx, t, "stop"); err != nil || !stopped {
			return cmp.Or(err, errRefused)
		}
		last := int64(-1)
		for after := ""; !found.ended && !found.needed; after = found.after {
			if found, err = t.search(ctx, history, after); err != nil {
				return err
			}
			last = max(last, found.last)
			if wanted, err := value[bool](ctx, t, "wanted"); err != nil || wanted {
				return cmp.Or(err, errRefused)
			}
		}
		if found.needed {
			return nil
		}
		for _, name := range []string{"written", "retire"} {
			if _, err := t.tx.Exec(ctx, t.each(name), last); err != nil {
				return err
			}
		}
		heeded, err := value[int](ctx, t, "heeded", k.config.DumpWithin.Microseconds())
		if err != nil || heeded > 0 {
			return err
		}
		if found.truncated, err = value[bool](ctx, t, "truncate"); err != nil || !found.truncated {
			return cmp.Or(err, errRefused)
		}
		_, err = t.tx.Exec(ctx, t.each("unretire"))
		return err
	})
	return found, err
}

// search looks at the next lines of the segment behind a line, for a chain that needs it.
func (t step) search(ctx context.Context, history History, after string) (found look, err error) {
	found = look{after: after, last: -1}
	rows, err := t.tx.Query(ctx, t.each("lines"), after, t.k.config.Lines)
	if err != nil {
		return found, err
	}
	var lines []string
	var line string
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&line, &last}, func() error {
		lines, found.last = append(lines, line), max(found.last, last)
		return nil
	})
	if err != nil || len(lines) == 0 {
		found.ended = true
		return found, err
	}
	found.after, found.ended = line, len(lines) < t.k.config.Lines
	those, err := t.chains(ctx, history, lines)
	if err != nil {
		return found, err
	}
	var nth int
	err = t.tx.QueryRow(ctx, t.each("needed"), those.lines, those.numbers, those.places, those.seen, those.ended).Scan(&nth)
	if errors.Is(err, pgx.ErrNoRows) {
		return found, nil
	}
	if err == nil {
		found.needed, found.line, found.chain = true, those.lines[nth], those.numbers[nth]
	}
	return found, err
}

// columns are chains, as a statement gets them.
type columns struct {
	lines           []string
	numbers, places []int64
	seen            []string
	ended           []bool
}

func (c *columns) add(line string, chain Chain, ended bool) {
	c.lines, c.numbers, c.places = append(c.lines, line), append(c.numbers, chain.Number), append(c.places, chain.BeginPos)
	c.seen, c.ended = append(c.seen, chain.BeginSeen), append(c.ended, ended)
}

// chains are those of the lines: of the history, because a chain that has read nothing has no row, and of the batches, because one that has
// ended may have some in work.
func (t step) chains(ctx context.Context, history History, lines []string) (those columns, err error) {
	type key struct {
		line  string
		chain int64
	}
	known := map[key]bool{}
	for _, line := range lines {
		for _, c := range history.Chains(line) {
			known[key{line, c.Number}] = true
			those.add(line, c, false)
		}
	}
	rows, err := t.tx.Query(ctx, t.each("chains"), lines)
	if err != nil {
		return those, err
	}
	var k key
	_, err = pgx.ForEachRow(rows, []any{&k.line, &k.chain}, func() error {
		if !known[k] {
			those.add(k.line, Chain{Number: k.chain}, true)
		}
		return nil
	})
	return those, err
}

// refusals are the pauses after a lock was refused, each longer than the last: a transaction that has written to a segment may stay open
// for hours.
type refusals struct {
	until time.Time
	pause time.Duration
}

const (
	firstRefusal = 100 * time.Millisecond
	maxRefusal   = 30 * time.Second
)

func (r *refusals) over() bool { return !time.Now().Before(r.until) }

func (r *refusals) more() {
	r.pause = min(max(2*r.pause, firstRefusal), maxRefusal)
	r.until = time.Now().Add(r.pause)
}

func (r *refusals) none() { *r = refusals{} }
