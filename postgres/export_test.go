package postgres

import (
	"context"
	"io/fs"
	"math"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// SchemaFiles are the migrations that are built into the program.
var SchemaFiles fs.FS = schemaFiles

// EnsureFrom is Ensure of a program with these migrations.
func (s *Store) EnsureFrom(ctx context.Context, files fs.FS) error { return s.ensure(ctx, files) }

// Truncate, Evacuate and TendSegments are what upkeep does to the log.
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

// Evacuate moves all that is needed of a segment, as far as it can be, and truncates it
// then.
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

// TendSegments does what a turn of the upkeep does, until there is no more to do.
func (s *Store) TendSegments(ctx context.Context) error {
	for {
		if more, err := s.tendSegments(ctx); err != nil || !more {
			return err
		}
	}
}

// LastTurn is when the store asked for a turn of the upkeep, or when its turn ended.
func (s *Store) LastTurn() time.Time {
	s.maintained.mu.Lock()
	defer s.maintained.mu.Unlock()
	return s.maintained.last
}

// HeedSnapshotsFor has snapshots of a database kept in mind for that long before a segment
// is truncated.
func (s *Store) HeedSnapshotsFor(d time.Duration) { s.dumpWithin = d }

// TidyBatches drops the batches that are over, however few there are.
func (s *Store) TidyBatches(ctx context.Context) error {
	s.batchesRefused.none()
	_, err := s.dropBatches(ctx, math.MaxInt64)
	return err
}

// DeleteBatches drops the batches that are over line by line.
func (s *Store) DeleteBatches(ctx context.Context) error {
	for {
		if more, err := s.deleteBatches(ctx); err != nil || !more && s.dropped.Load() == math.MinInt64 {
			return err
		}
	}
}

// ForgetLines forgets all lines of which nothing is left.
func (s *Store) ForgetLines(ctx context.Context) error {
	s.forget.begin()
	for {
		if more, err := s.forgetLines(ctx); err != nil || !more {
			return err
		}
	}
}

// MarkSQL is what a claim of the log begins with.
func (s *Store) MarkSQL() string { return s.sql.text(sqlMark) }

// AtRest tells whether the store remembers that the selection had nothing in the
// log.
func (s *Store) AtRest(group string, topics outmill.Topics) bool {
	_, known := s.rests.get(restKey(group, topics))
	return known
}

// LineOf is the number of a group's line of a topic in the log.
func LineOf(group, topic string) int64 { return lineOf(group, topic) }

// LookAgain forgets that the log is at rest. What a look knows of the ends of leases
// goes by this process's clock, which does not pass where a test makes the
// database's time pass.
func (s *Store) LookAgain() {
	s.rests.mu.Lock()
	defer s.rests.mu.Unlock()
	s.rests.known = nil
}

// SetAtOnce makes the steps of what one transaction does not finish small.
func (s *Store) SetAtOnce(records int) { s.atOnce = storekit.BatchSize(records) }

// Passes is passes.
func Passes(err error) bool { return passes(err) }

// MaxRests bounds of how many selections a store remembers something.
const MaxRests = maxRests

// LinesOfLook is how many lines one look goes over.
const LinesOfLook = linesOfLook

// TellOfSegmentsFrom sets the size from which on a segment is told of that grows.
func (s *Store) TellOfSegmentsFrom(bytes int64) { s.largeSegment = bytes }

// RoundsKnown is of how many selections the store has rounds.
func (s *Store) RoundsKnown() int {
	s.rounds.mu.Lock()
	defer s.rounds.mu.Unlock()
	return len(s.rounds.known)
}
