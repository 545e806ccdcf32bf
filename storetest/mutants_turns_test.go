package storetest

import (
	"context"
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_BrokenTurns(t *testing.T) {
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], 1, []mutant{
		{"serves turns in no topic", "turns", "a claim takes as much of each tenant, by key",
			func(f mutants.File) outmill.Store { return servesNoTurns{f} }},
		{"lets a big tenant go first", "turns", "a tenant with thousands of records does not hold up 49 tenants with ten, without an order",
			func(f mutants.File) outmill.Store { return servesNoTurns{f} }},
		{"claims to serve turns everywhere", "turns", "ServesTurns is true for the topics of the setting only",
			func(f mutants.File) outmill.Store { return turnsEverywhere{f} }},
		{"ignores keys that tenants share", "turns", "the order of a key holds when tenants share it",
			func(f mutants.File) outmill.Store { return turnsWithoutKeys{f} }},
		{"hands out less than the others leave", "turns", "what the others leave of a claim goes to the tenants that have more, by key",
			func(f mutants.File) outmill.Store { return claimsHalf{f} }},
	})
}

// servesNoTurns claims whole topics, which serves no turns.
type servesNoTurns struct{ mutants.File }

func (m servesNoTurns) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	req.Order = outmill.OrderTopic
	return m.File.Claim(ctx, req)
}

type turnsWithoutKeys struct{ mutants.File }

func (m turnsWithoutKeys) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	req.Order = outmill.OrderNone
	return m.File.Claim(ctx, req)
}

type turnsEverywhere struct{ mutants.File }

func (turnsEverywhere) ServesTurns(string) bool { return true }

type claimsHalf struct{ mutants.File }

func (m claimsHalf) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	req.Limit = (req.Limit + 1) / 2
	return m.File.Claim(ctx, req)
}
