package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_BrokenRests(t *testing.T) {
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], 1, []mutant{
		{"is always at rest", "rest", "a store with a pending record is not at rest, due or delayed, of a group or of none",
			func(f mutants.File) outmill.Store { return restsAlways{f} }},
		{"is never at rest", "rest", "a store whose records are processed or dead is at rest",
			func(f mutants.File) outmill.Store { return restsNever{restsAlways{f}} }},
	})
}

type restsAlways struct{ mutants.File }

func (restsAlways) RestsWith() (with, self any) { return 0, 0 }

func (restsAlways) Resting(_ context.Context, stores []any) ([]bool, error) {
	return slices.Repeat([]bool{true}, len(stores)), nil
}

type restsNever struct{ restsAlways }

func (restsNever) Resting(_ context.Context, stores []any) ([]bool, error) {
	return make([]bool, len(stores)), nil
}
