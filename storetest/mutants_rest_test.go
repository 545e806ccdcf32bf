package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_BrokenRests(t *testing.T) {
	// The test of the store that keeps its rest then fails sooner.
	hintWithin = time.Second
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"is always at rest", "rest", "a store with a pending record is not at rest, due or delayed, of a group or of none",
			func(f mutants.File) outmill.Store { return restsAlways{f} }},
		{"is never at rest", "rest", "a store whose records are processed or dead is at rest",
			func(f mutants.File) outmill.Store { return restsNever{restsAlways{f}} }},
		{"keeps its rest until it writes itself", "rest", "what another process appends or requeues ends the rest, also of a store that listens",
			func(f mutants.File) outmill.Store { return restsOn{f, &atomic.Bool{}} }},
	})
}

type restsAlways struct{ mutants.File }

func (restsAlways) IdleWith() (with, self any) { return 0, 0 }

func (restsAlways) AreIdle(_ context.Context, stores []any) ([]bool, error) {
	return slices.Repeat([]bool{true}, len(stores)), nil
}

type restsNever struct{ restsAlways }

func (restsNever) AreIdle(_ context.Context, stores []any) ([]bool, error) {
	return make([]bool, len(stores)), nil
}

type restsOn struct {
	mutants.File
	kept *atomic.Bool
}

func (s restsOn) IdleWith() (with, self any) { return s.kept, s }

func (s restsOn) AreIdle(ctx context.Context, _ []any) ([]bool, error) {
	inner, _ := outmill.As[roles.Idle](s.File)
	_, self := inner.IdleWith()
	resting, err := inner.AreIdle(ctx, []any{self})
	if err == nil && resting[0] {
		s.kept.Store(true)
	}
	return []bool{s.kept.Load()}, err
}

func (s restsOn) Append(ctx context.Context, records ...*outmill.Record) error {
	defer s.kept.Store(false)
	return s.File.Append(ctx, records...)
}
