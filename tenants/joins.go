package tenants

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// A join is in one member, which the context of each call names: see [WithTenant]. Its steps are
// in that member too, unless joins.SendSteps has sent them to others.

func (s *Set) inJoins(ctx context.Context, call string, fn func(ctx context.Context, joins roles.Joins) error) error {
	return in(ctx, s, call, joinsRole, func(ctx context.Context, _ *member, joins roles.Joins) error { return fn(ctx, joins) })
}

// StartJoin begins a join in the member that ctx names. See roles.Joins.
func (s *Set) StartJoin(ctx context.Context, join *roles.Join) error {
	return s.inJoins(ctx, "start a join", func(ctx context.Context, joins roles.Joins) error {
		return joins.StartJoin(ctx, join)
	})
}

// AttachStep makes a record a step of a join, both of the member that ctx names. See
// roles.Joins.
func (s *Set) AttachStep(ctx context.Context, join outmill.JoinID, message outmill.WorkItemID) error {
	return s.inJoins(ctx, "attach a step", func(ctx context.Context, joins roles.Joins) error {
		return joins.AttachStep(ctx, join, message)
	})
}

// ReportCompleted settles a step in the member that ctx names. See roles.Joins.
func (s *Set) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.inJoins(ctx, "report a step", func(ctx context.Context, joins roles.Joins) error {
		return joins.ReportCompleted(ctx, join, step)
	})
}

// ReportFailed settles a step in the member that ctx names. See roles.Joins.
func (s *Set) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.inJoins(ctx, "report a step", func(ctx context.Context, joins roles.Joins) error {
		return joins.ReportFailed(ctx, join, step)
	})
}

// SealJoin says how many steps a join of the member that ctx names has. See roles.Joins.
func (s *Set) SealJoin(ctx context.Context, join outmill.JoinID, expectedSteps int) error {
	return s.inJoins(ctx, "seal a join", func(ctx context.Context, joins roles.Joins) error {
		return joins.SealJoin(ctx, join, expectedSteps)
	})
}

// FinishJoin ends a join of the member that ctx names. See roles.Joins.
func (s *Set) FinishJoin(ctx context.Context, join outmill.JoinID, request roles.FinishRequest) (result roles.FinishResult,
	err error) {
	err = s.inJoins(ctx, "finish a join", func(ctx context.Context, joins roles.Joins) (err error) {
		result, err = joins.FinishJoin(ctx, join, request)
		return err
	})
	return result, err
}

// CancelJoin ends a join of the member that ctx names. See roles.Joins.
func (s *Set) CancelJoin(ctx context.Context, join outmill.JoinID, reason string) error {
	return s.inJoins(ctx, "cancel a join", func(ctx context.Context, joins roles.Joins) error {
		return joins.CancelJoin(ctx, join, reason)
	})
}

// GetJoin returns a join of the member that ctx names. See roles.Joins.
func (s *Set) GetJoin(ctx context.Context, join outmill.JoinID) (found *roles.Join, err error) {
	err = s.inJoins(ctx, "get a join", func(ctx context.Context, joins roles.Joins) (err error) {
		found, err = joins.GetJoin(ctx, join)
		return err
	})
	return found, err
}

// ListJoins returns joins of the member that ctx names. See roles.Joins.
func (s *Set) ListJoins(ctx context.Context, query roles.JoinQuery) (found []*roles.Join, err error) {
	err = s.inJoins(ctx, "list joins", func(ctx context.Context, joins roles.Joins) (err error) {
		found, err = joins.ListJoins(ctx, query)
		return err
	})
	return found, err
}

// ListSteps returns steps of a join of the member that ctx names. See roles.Joins.
func (s *Set) ListSteps(ctx context.Context, join outmill.JoinID, after outmill.WorkItemID, limit int) (steps []roles.JoinStep,
	err error) {
	err = s.inJoins(ctx, "list steps", func(ctx context.Context, joins roles.Joins) (err error) {
		steps, err = joins.ListSteps(ctx, join, after, limit)
		return err
	})
	return steps, err
}

// DeleteJoins deletes ended joins of all members that keep some. See roles.Joins.
func (s *Set) DeleteJoins(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete joins", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		joins, ok := outmill.As[roles.Joins](m.store)
		if !ok {
			return 0, nil
		}
		return joins.DeleteJoins(ctx, limit)
	})
}
