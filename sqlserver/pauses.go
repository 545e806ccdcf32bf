package sqlserver

import (
	"context"
	"slices"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// sqlPauses reads the counter before the pauses, so that a list is at least as new as its number.
const sqlPauses = atReadCommitted + `SELECT Pauses FROM [dbo].[OutboxMeta] WHERE OnlyRow = 1;
SELECT Number, GroupName, Topic, [Key], TenantId, PausedAt, PausedBy, Reason FROM [dbo].[OutboxPause]`

// Pause stops the deliveries of the scope. See roles.Pauses.
func (s *Store) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	const operation = "pause"
	if err := storekit.CheckPause(scope, by, reason); err != nil {
		return s.explain(ctx, operation, err)
	}
	var done bool
	err := s.run(ctx, operation, call{
		template: "[dbo].[Outbox_Pause]",
		args:     append(scopeArgs(scope), named("By", by), named("Reason", reason), named("Most", roles.MaxPauses)),
		sets:     []reader{numbers(&done)},
	})
	if err == nil && !done {
		err = s.explain(ctx, operation, roles.ErrTooManyPauses)
	}
	return err
}

// Resume ends the pause of the scope, and wakes the readers of this process. See roles.Pauses.
func (s *Store) Resume(ctx context.Context, scope roles.PauseScope) (bool, error) {
	const operation = "resume"
	if err := storekit.CheckPauseScope(scope); err != nil {
		return false, s.explain(ctx, operation, err)
	}
	var ended int
	err := s.run(ctx, operation, call{template: "[dbo].[Outbox_Resume]", args: scopeArgs(scope), sets: []reader{numbers(&ended)}})
	if err != nil {
		return false, err
	}
	if ended > 0 {
		s.notifier.Notify()
	}
	return ended > 0, nil
}

func scopeArgs(s roles.PauseScope) []any {
	return []any{named("Group", s.Group), named("Topic", s.Topic), named("Key", s.Key), named("TenantId", s.TenantID)}
}

// Paused returns the pauses. See roles.Pauses.
func (s *Store) Paused(ctx context.Context) ([]roles.PauseInfo, error) {
	list, err := s.readPauses(ctx, "list pauses")
	return slices.Clone(list.All()), err
}

// LastPauses returns the pauses as the store last read them. Claim and Extend read whether they
// have changed, with the statements that they run anyway. See roles.Pauses.
func (s *Store) LastPauses() *roles.PauseList { return s.pauses.Load() }

// pausesRead reads the two result sets of sqlPauses.
type pausesRead struct {
	generation int64
	pauses     []roles.PauseInfo
}

func (r *pausesRead) reset() { *r = pausesRead{} }

func (r *pausesRead) sets() []reader {
	return []reader{numbers(&r.generation), func(scan func(...any) error) error {
		var p roles.PauseInfo
		err := scan(&p.Number, &p.Group, &p.Topic, &p.Key, &p.TenantID, &p.At, &p.By, &p.Reason)
		p.At = p.At.UTC()
		r.pauses = append(r.pauses, p)
		return err
	}}
}

// keep makes the list, and keeps it if it is newer than the known one.
func (r *pausesRead) keep(s *Store) *roles.PauseList {
	list := roles.NewPauseList(r.generation, r.pauses)
	s.pauses.Keep(list)
	return list
}

func (s *Store) readPauses(ctx context.Context, operation string) (*roles.PauseList, error) {
	var read pausesRead
	if err := s.run(ctx, operation, call{template: sqlPauses, reset: read.reset, sets: read.sets()}); err != nil {
		return nil, err
	}
	return read.keep(s), nil
}

// knownPauses returns the known pauses if they are those of that generation or newer ones.
func (s *Store) knownPauses(generation int64) (*roles.PauseList, bool) {
	if generation == 0 {
		// Nothing has ever been paused.
		s.pauses.Keep(roles.NewPauseList(0, nil))
	}
	known := s.pauses.Load()
	return known, known != nil && known.Generation() >= generation
}

// learnPauses reads the pauses if a call has met a generation that is not known yet.
func (s *Store) learnPauses(ctx context.Context, operation string, generation int64) error {
	if _, known := s.knownPauses(generation); known {
		return nil
	}
	_, err := s.readPauses(ctx, operation)
	return err
}

// pausesIn is learnPauses within a transaction, for a claim that is to compare records with them.
func (s *Store) pausesIn(ctx context.Context, on querier, generation int64) (*roles.PauseList, error) {
	if list, known := s.knownPauses(generation); known {
		return list, nil
	}
	var read pausesRead
	if err := s.do(ctx, on, call{template: sqlPauses, reset: read.reset, sets: read.sets()}); err != nil {
		return nil, err
	}
	return read.keep(s), nil
}
