package tenants

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// A join is in one member, which the context of each call names: see [WithTenant]. Its steps are
// in that member too, unless joins.SendSteps has sent them to others.

// StartJoin begins a join in the member that ctx names. See roles.Joins.
func (s *Set) StartJoin(ctx context.Context, join *roles.Join) error {
	return do(ctx, s, "start a join", joinsOf, func(ctx context.Context, joins roles.Joins) error {
		return joins.StartJoin(ctx, join)
	})
}

// AttachStep makes a record a step of a join, both of the member that ctx names. See
// roles.Joins.
func (s *Set) AttachStep(ctx context.Context, join outmill.JoinID, message outmill.WorkItemID) error {
	return do(ctx, s, "attach a step", joinsOf, func(ctx context.Context, joins roles.Joins) error {
		return joins.AttachStep(ctx, join, message)
	})
}

// ReportCompleted settles a step in the member that ctx names. See roles.Joins.
func (s *Set) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return do(ctx, s, "report a step", joinsOf, func(ctx context.Context, joins roles.Joins) error {
		return joins.ReportCompleted(ctx, join, step)
	})
}

// ReportFailed settles a step in the member that ctx names. See roles.Joins.
func (s *Set) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return do(ctx, s, "report a step", joinsOf, func(ctx context.Context, joins roles.Joins) error {
		return joins.ReportFailed(ctx, join, step)
	})
}

// SealJoin says how many steps a join of the member that ctx names has. See roles.Joins.
func (s *Set) SealJoin(ctx context.Context, join outmill.JoinID, expectedSteps int) error {
	return do(ctx, s, "seal a join", joinsOf, func(ctx context.Context, joins roles.Joins) error {
		return joins.SealJoin(ctx, join, expectedSteps)
	})
}

// FinishJoin ends a join of the member that ctx names. See roles.Joins.
func (s *Set) FinishJoin(ctx context.Context, join outmill.JoinID, request roles.FinishRequest) (roles.FinishResult, error) {
	return get(ctx, s, "finish a join", joinsOf, func(ctx context.Context, joins roles.Joins) (roles.FinishResult, error) {
		return joins.FinishJoin(ctx, join, request)
	})
}

// CancelJoin ends a join of the member that ctx names. See roles.Joins.
func (s *Set) CancelJoin(ctx context.Context, join outmill.JoinID, reason string) error {
	return do(ctx, s, "cancel a join", joinsOf, func(ctx context.Context, joins roles.Joins) error {
		return joins.CancelJoin(ctx, join, reason)
	})
}

// GetJoin returns a join of the member that ctx names. See roles.Joins.
func (s *Set) GetJoin(ctx context.Context, join outmill.JoinID) (*roles.Join, error) {
	return get(ctx, s, "get a join", joinsOf, func(ctx context.Context, joins roles.Joins) (*roles.Join, error) {
		return joins.GetJoin(ctx, join)
	})
}

// ListJoins returns joins of the member that ctx names. See roles.Joins.
func (s *Set) ListJoins(ctx context.Context, query roles.JoinQuery) ([]*roles.Join, error) {
	return get(ctx, s, "list joins", joinsOf, func(ctx context.Context, joins roles.Joins) ([]*roles.Join, error) {
		return joins.ListJoins(ctx, query)
	})
}

// ListSteps returns steps of a join of the member that ctx names. See roles.Joins.
func (s *Set) ListSteps(ctx context.Context, join outmill.JoinID, after outmill.WorkItemID, limit int) ([]roles.JoinStep, error) {
	return get(ctx, s, "list steps", joinsOf, func(ctx context.Context, joins roles.Joins) ([]roles.JoinStep, error) {
		return joins.ListSteps(ctx, join, after, limit)
	})
}

// DeleteJoins deletes ended joins of all members that keep some. See roles.Joins.
func (s *Set) DeleteJoins(ctx context.Context, limit int) (int, error) {
	return tidy(ctx, s, "delete joins", limit, joinsOf, roles.Joins.DeleteJoins)
}
