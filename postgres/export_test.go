package postgres

import (
	"context"
	"io/fs"
	"math"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// SchemaFiles are the migrations that are built into the program.
var SchemaFiles fs.FS = schemaFiles

// EnsureFrom is Ensure of a program with these migrations.
func (s *Store) EnsureFrom(ctx context.Context, files fs.FS) error { return s.ensure(ctx, files) }

// Truncate truncates a segment, like the upkeep of the log.
func (s *Store) Truncate(ctx context.Context, segment int) (bool, error) {
	look, err := s.truncated(ctx, segment)
	return look.truncated, err
}

func (s *Store) truncated(ctx context.Context, segment int) (look segmentLook, err error) {
	s.refusals[segment].none()
	for look.more = true; look.more && err == nil; {
		look, err = s.truncate(ctx, segment)
	}
	return look, err
}

// Evacuate moves the needed records of a segment, as far as possible, and then truncates it.
func (s *Store) Evacuate(ctx context.Context, segment int) error {
	for {
		look, err := s.truncated(ctx, segment)
		if err != nil || !look.needed {
			return err
		}
		if moved, err := s.evacuate(ctx, look); err != nil || !moved {
			return err
		}
	}
}

// TendSegments does the work of a turn of the upkeep until nothing is left to do.
func (s *Store) TendSegments(ctx context.Context) error {
	for {
		if more, err := s.tendSegments(ctx); err != nil || !more {
			return err
		}
	}
}

// LastTurn returns when the store asked for a turn of the upkeep, or when its turn ended.
func (s *Store) LastTurn() time.Time {
	s.maintained.mu.Lock()
	defer s.maintained.mu.Unlock()
	return s.maintained.last
}

// HeedSnapshotsFor sets how long snapshots of a database are heeded before a segment is
// truncated.
func (s *Store) HeedSnapshotsFor(d time.Duration) { s.dumpWithin = d }

// Impatient sets how long Close waits for calls, and after which silence the listening connection
// is asked whether it still works.
func (s *Store) Impatient(closeWithin, heartbeat time.Duration) {
	s.closeWithin = closeWithin
	s.notices.BeatEvery(heartbeat)
}

// CloseWithin is the default of Impatient.
const CloseWithin = storekit.CloseWithin

// TidyBatches drops the finished batches, however few there are.
func (s *Store) TidyBatches(ctx context.Context) error {
	s.batchesRefused.none()
	_, err := s.dropBatches(ctx, math.MaxInt64)
	return err
}

// DeleteBatches drops the finished batches line by line.
func (s *Store) DeleteBatches(ctx context.Context) error {
	for {
		if more, err := s.deleteBatches(ctx); err != nil || !more && s.dropped.Load() == math.MinInt64 {
			return err
		}
	}
}

// ForgetLines deletes the positions of all lines without records in the log.
func (s *Store) ForgetLines(ctx context.Context) error {
	s.forget.begin()
	for {
		if more, err := s.forgetLines(ctx); err != nil || !more {
			return err
		}
	}
}

// MarkSQL returns the first statement of a claim of the log.
func (s *Store) MarkSQL() string { return s.sql.text(sqlMark) }

// AtRest reports whether the store remembers that the selection had no records in the log.
func (s *Store) AtRest(group string, topics outmill.Topics) bool {
	_, known := s.rests.get(restKey(group, topics))
	return known
}

// LineOf returns the number of a group's line of a topic in the log.
func LineOf(group, topic string) int64 { return lineOf(group, topic) }

// LookAgain makes the store forget that the log is at rest. The store compares the ends of
// leases with this process's clock, which does not move when a test moves the database's time.
func (s *Store) LookAgain() {
	s.rests.mu.Lock()
	defer s.rests.mu.Unlock()
	s.rests.known = nil
}

// SetAtOnce limits the steps of work that one transaction does not finish.
func (s *Store) SetAtOnce(records int) { s.atOnce = storekit.BatchSize(records) }

// Passes is passes.
func Passes(err error) bool { return passes(err) }

// MaxRests is the most selections of which a store remembers a rest.
const MaxRests = maxRests

// LinesOfLook is the number of lines of one search.
const LinesOfLook = linesOfLook

// TellOfSegmentsFrom sets the size from which the store logs that a segment grows.
func (s *Store) TellOfSegmentsFrom(bytes int64) { s.largeSegment = bytes }

// RoundsKnown returns the number of selections of which the store has rounds.
func (s *Store) RoundsKnown() int {
	s.rounds.mu.Lock()
	defer s.rounds.mu.Unlock()
	return len(s.rounds.known)
}

// RightsOf are the rights that Examine wants for a task.
func RightsOf(task roles.Task, logged bool) map[string][]string {
	all := map[string][]string{}
	for _, r := range rightsOf(logged)[task] {
		all[r.Name] = append(all[r.Name], r.Privileges...)
	}
	return all
}

// TurnStatements are the texts of the statements that find what a claim serves in turn, each with
// NULL for its arguments.
func (s *Store) TurnStatements() map[string]int {
	return map[string]int{
		s.sql.text(sqlTurnsFrom): 6, s.sql.text(sqlTurnPage): 8, s.sql.text(sqlTurnPageAny): 6, s.sql.text(sqlGiveTurns): 3,
		s.sql.text(sqlBehindReady): 4,
	}
}
