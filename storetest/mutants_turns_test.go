package storetest

import (
	"context"
	"slices"
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
		{"ignores the room of tenants", "turns",
			"a claim returns no more of a tenant than it has room for, and fills up from the others, without an order",
			func(f mutants.File) outmill.Store { return withoutRooms{f} }},
		{"hands out too much of a tenant now and then", "turns",
			"a random walk never exceeds the room of a tenant, and hands out each record once, by key",
			func(f mutants.File) outmill.Store { return oneTooMany{f} }},
		{"passes the records without room of a key", "turns",
			"a record without room holds back the later records of its key, whatever their tenants are, and no others",
			func(f mutants.File) outmill.Store { return turnsWithoutKeys{f} }},
		{"limits claims of whole topics", "turns", "a claim of a whole topic has no room of tenants",
			func(f mutants.File) outmill.Store { return roomsEverywhere{f} }},
		{"limits claims that serve no turns", "claim", "TenantRoom has no effect where the claim serves no turns",
			func(f mutants.File) outmill.Store { return roomsEverywhere{f} }},
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

type withoutRooms struct{ mutants.File }

func (m withoutRooms) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	req.TenantRoom = nil
	return m.File.Claim(ctx, req)
}

// oneTooMany gives each tenant room for one record more.
type oneTooMany struct{ mutants.File }

func (m oneTooMany) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	if room := req.TenantRoom; room != nil {
		req.TenantRoom = func(store, topic, tenant string) int { return room(store, topic, tenant) + 1 }
	}
	return m.File.Claim(ctx, req)
}

// roomsEverywhere drops what has no room also where the claim serves no turns.
type roomsEverywhere struct{ mutants.File }

func (m roomsEverywhere) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	if req.TenantRoom == nil {
		return found, err
	}
	return slices.DeleteFunc(found, func(r *outmill.Record) bool { return req.TenantRoom("", r.Topic, r.TenantID) <= 0 }), err
}
