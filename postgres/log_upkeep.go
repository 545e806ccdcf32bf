package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// The upkeep of the log is done in turns: a row of the database says who has the turn,
// until when, and when the last one ended, so one process of a fleet does it at a time,
// and as often as one process alone would. A process that dies leaves its turn to the
// others when its time is over. Two that work together do no harm, because each step
// takes the locks that it needs.

const (
	// lookEvery is how often the segments are looked at, lookIdly how often where
	// nothing was claimed here, and nothing was written, since the last look.
	lookEvery = 2 * time.Second
	lookIdly  = 30 * time.Second
	// turnFor is how long a process has the turn, and turnWork how long it works at
	// most.
	turnFor  = 30 * time.Second
	turnWork = 20 * time.Second

	// sqlTakeTurn takes the turn where nobody has it and the last one ended $2
	// microseconds ago. What is in the future was set by a clock that has gone back.
	sqlTakeTurn = `UPDATE {p:upkeep} SET turn = $1::bigint, until = statement_timestamp() + $3::bigint * interval '1 microsecond'
WHERE only_row AND (until <= statement_timestamp() OR until > statement_timestamp() + interval '10 minutes')
	AND (ended_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	OR ended_at > statement_timestamp() + interval '10 minutes')`

	sqlEndTurn = `UPDATE {p:upkeep} SET until = statement_timestamp(), ended_at = statement_timestamp() WHERE only_row AND turn = $1::bigint`
)

// maintained is what a process knows of the upkeep of the log.
type maintained struct {
	mu sync.Mutex
	// last is when it asked for the turn, or when its turn ended: the database counts from
	// there.
	last  time.Time
	sizes [segments]int64
	// idle: nothing was written between the last two looks. hurry: there is more to do.
	idle, hurry bool
}

// patience is how long ago the last turn must have ended for this process to take one,
// and due whether it is to ask for it.
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

// Maintain looks after the segments of the log and the batches: it has appends write to
// another segment when one is full, truncates those of which nothing is needed, moves
// to the records what a group has not read for ten minutes, up to 2,000 records in a
// call, and drops what is over. Without the log there is nothing to do. It looks every
// 2 s, and every 30 s while nothing is written; a call in between, or while another
// process does it, returns at once. A role without the rights for it (see the package's
// documentation) leaves it to others. See outmill.Janitor.
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
