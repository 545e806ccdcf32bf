package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// TestRun_StoreThatLeavesParking has a sound store that leaves to claims what the contract lets a store leave.
func TestRun_StoreThatLeavesParking(t *testing.T) {
	t.Parallel()
	parking := slices.DeleteFunc(sections(), func(s suite.Section) bool {
		return !slices.Contains([]string{"park", "skip", "dead letters", "audit", "edit", "find", "groups", "model"}, s.Name)
	})
	leaves := mutants.InFile(func(f mutants.File) outmill.Store { return leavesParking{f, "", "claims = 0"} })
	suite.Suite{Sections: parking, New: leaves}.Run(t)
}

func TestRun_BrokenParking(t *testing.T) {
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"counts an attempt of what it leaves to claims", "park",
			"Fail parks a later record at once, or leaves it as it is to the next claim with Park; lists and counts say which",
			func(f mutants.File) outmill.Store { return leavesParking{f, ", attempts = attempts + 1", "claims = 0"} }},
		{"leaves to claims what they had returned, on a walk", "model", walkSentence,
			func(f mutants.File) outmill.Store { return leavesParking{f, "", "claims > 0"} }},
		{"never parks what is behind", "park", "a record failed with Park takes the later pending records of its key along",
			func(f mutants.File) outmill.Store { return neverParks{f} }},
		{"never parks what is behind, on a walk", "model", walkSentence, func(f mutants.File) outmill.Store { return neverParks{f} }},
	})
}

// leavesParking is a store whose Fail leaves some later records of a key to claims, and changes them.
type leavesParking struct {
	mutants.File
	change, some string
}

func (m leavesParking) Fail(ctx context.Context, failures []outmill.Settlement) error {
	if err := m.File.Fail(ctx, failures); err != nil {
		return err
	}
	for _, f := range failures {
		if _, err := m.DB().ExecContext(ctx, `UPDATE outmill_records SET stage = 0, parked = 0, last_error = NULL`+m.change+`
			WHERE parked = 1 AND last_error LIKE 'parked%' AND next_at <= created_at AND `+m.some+` -- a delayed record is not ready
				AND (grp, topic, key) = (SELECT grp, topic, key FROM outmill_records WHERE id = ? AND parked = 1)`, f.Lease.ID.String()); err != nil {
			return err
		}
	}
	return nil
}

// neverParks is a store that holds back what is behind a parked record, and parks nothing of it.
type neverParks struct{ mutants.File }

func (m neverParks) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	return found, errors.Join(err, m.free(ctx))
}

func (m neverParks) Fail(ctx context.Context, failures []outmill.Settlement) error {
	return errors.Join(m.File.Fail(ctx, failures), m.free(ctx))
}

func (m neverParks) free(ctx context.Context) error {
	_, err := m.DB().ExecContext(ctx, `UPDATE outmill_records SET stage = 0, parked = 0, last_error = NULL
		WHERE parked = 1 AND last_error LIKE 'parked%'`)
	return err
}
