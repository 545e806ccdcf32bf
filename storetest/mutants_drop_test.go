package storetest

import (
	"context"
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_StoresWithBrokenDrops(t *testing.T) {
	drops := func(change func(ctx context.Context, m mutants.File, group string) (outmill.Dropped, error)) func(mutants.File) outmill.Store {
		return func(f mutants.File) outmill.Store { return dropsOtherwise{f, change} }
	}
	// before runs a statement with the name of the group before the drop, and after does so after it.
	before := func(statement string) func(mutants.File) outmill.Store {
		return drops(func(ctx context.Context, m mutants.File, group string) (outmill.Dropped, error) {
			if err := run(ctx, m, statement, group); err != nil {
				return outmill.Dropped{}, err
			}
			return m.DropGroup(ctx, group)
		})
	}
	after := func(statement string) func(mutants.File) outmill.Store {
		return drops(func(ctx context.Context, m mutants.File, group string) (outmill.Dropped, error) {
			dropped, err := m.DropGroup(ctx, group)
			if e := run(context.WithoutCancel(ctx), m, statement, group); e != nil {
				return dropped, e
			}
			return dropped, err
		})
	}
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"deletes what a dropped group has not settled", "giving back",
			"a dropped group gives back what it has not settled and no other group reads, and the next group gets it",
			after(`DELETE FROM outmill_records WHERE grp = '' AND ?1 <> ''`)},
		{"gives back what another group reads", "giving back", "a group that reads some of the topics keeps only these from being given back",
			before(`UPDATE outmill_records SET grp = '' WHERE grp = ?1 AND stage < 5`)},
		{"gives back with the attempts and expiries", "giving back",
			"what is given back is due as when it was appended, with no attempt and no expiry",
			after(`UPDATE outmill_records SET attempts = 1, expiries = 2 WHERE grp = '' AND claims > 0 AND ?1 <> ''`)},
		{"gives back with the delay of the retry", "giving back", "what is given back keeps its order, in front of what comes later",
			after(`UPDATE outmill_records SET stage = 3, wake_at = created_at + 3600000000 WHERE grp = '' AND claims > 0 AND ?1 <> ''`)},
		{"gives back what is not due as a retry", "giving back",
			"what is given back before it is due holds up nothing of its key, though it was claimed before",
			after(`UPDATE outmill_records SET stage = 2 WHERE grp = '' AND stage = 3 AND ?1 <> ''`)},
		{"leaves the leases of what it gives back", "giving back", "a lease of a record that was given back is invalid",
			before(`UPDATE outmill_records SET grp = '' WHERE grp = ?1 AND stage = 4`)},
		{"forgets the end of what it gives back", "giving back", "what is given back keeps its end",
			after(`UPDATE outmill_records SET expires_at = 0 WHERE grp = '' AND ?1 <> ''`)},
		{"decides again after an interruption", "giving back",
			"an interrupted drop goes on as it began, although another group has registered since",
			after(`DELETE FROM outmill_entries WHERE kind = 'ended' AND key = ?1`)},
		{"sweeps a drop that was interrupted", "giving back", "the end of registrations leaves a drop that was interrupted alone",
			after(`UPDATE outmill_entries SET at = 1 WHERE kind = 'ended' AND key = ?1`)},
	})
}

type dropsOtherwise struct {
	mutants.File
	change func(ctx context.Context, m mutants.File, group string) (outmill.Dropped, error)
}

func (m dropsOtherwise) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	return m.change(ctx, m.File, group)
}
