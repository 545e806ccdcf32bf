package postgres

import (
	"context"
	"io/fs"
	"math"

	"github.com/outmill/outmill"
)

// SchemaFiles are the migrations that are built into the program.
var SchemaFiles fs.FS = schemaFiles

// EnsureFrom is Ensure of a program with these migrations.
func (s *Store) EnsureFrom(ctx context.Context, files fs.FS) error { return s.ensure(ctx, files) }

// Truncate, Evacuate and TendSegments are what upkeep does to the log.
func (s *Store) Truncate(ctx context.Context, segment int) (bool, error) {
	s.refusals[segment].none()
	return s.truncate(ctx, segment)
}

func (s *Store) Evacuate(ctx context.Context, segment int) error { return s.evacuate(ctx, segment) }

func (s *Store) TendSegments(ctx context.Context) error { return s.tendSegments(ctx) }

// TidyBatches drops the batches that are over, however few there are.
func (s *Store) TidyBatches(ctx context.Context) error {
	s.batchesRefused.none()
	return s.tidyBatches(ctx, math.MaxInt64)
}

// ForgetLines is forgetLines.
func (s *Store) ForgetLines(ctx context.Context) error { return s.forgetLines(ctx) }

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
