package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Processes take turns at the upkeep of the log. A row of the database names who has the turn,
// until when, and when the last turn ended. So one process of a fleet does the upkeep at a
// time, and as often as a single process would. If a process dies, its turn ends at that time,
// and others can take the next one. Two processes that work at the same time do no harm,
// because each step takes the locks that it needs.

const (
	// lookEvery is the interval between two checks of the segments. lookIdly is the interval if
	// nothing was claimed here, and nothing was written, since the last check.
	lookEvery = 2 * time.Second
	lookIdly  = 30 * time.Second
	// turnFor is the length of a turn, and turnWork the most time that a process works in it.
	turnFor  = 30 * time.Second
	turnWork = 20 * time.Second

	// sqlTakeTurn takes the turn if nobody has it and the last one ended $2 microseconds ago.
	// It ignores a time in the future, because that is from a clock that was set back.
	sqlTakeTurn = `UPDATE {p:upkeep} SET turn = $1::bigint, until = statement_timestamp() + $3::bigint * interval '1 microsecond'
WHERE only_row AND (until <= statement_timestamp() OR until > statement_timestamp() + interval '10 minutes')
	AND (ended_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	OR ended_at > statement_timestamp() + interval '10 minutes')`

	sqlEndTurn = `UPDATE {p:upkeep} SET until = statement_timestamp(), ended_at = statement_timestamp() WHERE only_row AND turn = $1::bigint`
)

// maintained is a process's state of the upkeep of the log.
type maintained struct {
	mu sync.Mutex
	// last is when the process last asked for the turn, or when its turn ended. The database
	// counts from that time.
	last  time.Time
	sizes [segments]int64
	// idle: nothing was written between the last two checks. hurry: there is more to do.
	idle, hurry bool
}

// patience returns how long ago the last turn must have ended for this process to take one, and
// due whether it asks for the turn now.
func (m *maintained) patience(used bool) (patience time.Duration, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.hurry:
		return 0, true
	case m.idle && !used:
		patience = lookIdly
	default:
		patience = lookEvery
	}
	if time.Since(m.last) < patience {
		return patience, false
	}
	m.last = time.Now()
	return patience, true
}

func (m *maintained) noteSizes(sizes [segments]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle, m.sizes = m.sizes == sizes, sizes
}

func (m *maintained) endTurn(more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hurry, m.last = more, time.Now()
}

// Maintain does the upkeep of the log's segments and batches. It makes appends write to another
// segment if one is full, truncates segments without needed records, moves records that a group
// has not read for ten minutes to the table of records, up to 2,000 in a call, and drops
// finished batches. Without the log it does nothing. It checks every 2 s, and every 30 s while
// nothing is written. A call in between, or while another process does the upkeep, returns at
// once. A role without the rights for it (see the package's documentation) leaves it to others.
// See outmill.Janitor.
func (s *Store) Maintain(ctx context.Context) (more bool, err error) {
	const operation = "maintain"
	if err := s.ready(ctx); err != nil {
		return false, s.explain(ctx, operation, err)
	}
	patience, due := s.maintained.patience(s.logUsed.Load())
	if !due {
		return false, nil
	}
	if logged, err := s.seesLog(ctx, operation); err != nil || !logged {
		s.maintained.noteSizes([segments]int64{})
		return false, err
	}
	turn, taken := rand.Int64(), 0
	err = s.writeAll(ctx, operation,
		step{template: sqlTakeTurn, args: []any{turn, patience.Microseconds(), turnFor.Microseconds()}, count: &taken})
	if err == nil && taken > 0 {
		s.logUsed.Store(false)
		more, err = s.haveTurn(ctx, turn)
	}
	s.maintained.endTurn(more && err == nil)
	if code(err) == codeNoRight {
		return false, nil
	}
	return more, err
}

// haveTurn does some of the upkeep, and ends the turn.
func (s *Store) haveTurn(ctx context.Context, turn int64) (more bool, err error) {
	working, cancel := context.WithTimeout(ctx, turnWork)
	defer cancel()
	more, err = s.tendSegments(working)
	if ended := s.writeAll(ctx, "maintain", step{template: sqlEndTurn, args: []any{turn}}); err == nil {
		err = ended
	}
	return more, err
}
