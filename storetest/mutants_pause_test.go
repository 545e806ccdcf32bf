package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_BrokenPauses(t *testing.T) {
	pauses := func(change func(*roles.PauseScope)) func(mutants.File) outmill.Store {
		return func(f mutants.File) outmill.Store { return pausesOtherwise{f, change} }
	}
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"pauses nothing", "pause", "a paused topic is handed out to no group, and other topics are",
			func(f mutants.File) outmill.Store { return pausesNothing{f} }},
		{"pauses in this process alone", "pause", "no claim that begins after a pause hands out what is paused, in another process either",
			func(f mutants.File) outmill.Store { return &pausesHere{File: f} }},
		{"forgets its pauses", "pause", "a pause outlives the store that made it",
			func(f mutants.File) outmill.Store { return &pausesHere{File: f} }},
		{"pauses for all groups", "pause", "a topic that is paused for one group is handed out to another",
			pauses(func(s *roles.PauseScope) {
				if s.Topic != "" {
					s.Group = ""
				}
			})},
		{"pauses a key for all groups", "pause", "a key that is paused for one group is handed out to another",
			pauses(func(s *roles.PauseScope) {
				if s.Key != "" {
					s.Group = ""
				}
			})},
		{"pauses a tenant in all topics", "pause", "a tenant that is paused in one topic is handed out in another",
			pauses(func(s *roles.PauseScope) {
				if s.TenantID != "" {
					s.Topic = ""
				}
			})},
		{"pauses the topic of a key", "pause", "a paused key is held in claims by key, and other keys are not",
			pauses(func(s *roles.PauseScope) { s.Key = "" })},
		{"ignores keys under a pause", "pause", "a record of a paused tenant holds the later records of its key",
			func(f mutants.File) outmill.Store { return claimsUnordered{f} }},
		{"ignores the order of a topic under a pause", "pause", "a paused record holds the later records of its topic with OrderTopic",
			func(f mutants.File) outmill.Store { return claimsUnordered{f} }},
		{"takes leases away", "pause", "a record that a handler has under a pause keeps its lease and may be settled",
			func(f mutants.File) outmill.Store { return extendsUnpaused{f} }},
		{"resumes what it should not", "pause", "a record under two pauses waits for both",
			func(f mutants.File) outmill.Store { return resumesAll{f} }},
		{"ends a pause with any scope", "pause", "Resume reports whether there was a pause of exactly this scope",
			func(f mutants.File) outmill.Store { return resumesAll{f} }},
		{"hands out backwards after Resume", "pause", "Resume hands out the records of each key in their order",
			func(f mutants.File) outmill.Store { return allBackwards{f} }},
		{"hands out backwards what a pause has held", "pause",
			"Resume hands out to claims by key in order what claims without an order have held, behind many keys that others hold",
			func(f mutants.File) outmill.Store { return allBackwards{f} }},
		{"loses what was paused", "pause", "Resume hands out thousands of records, each once and in the order of their keys",
			func(f mutants.File) outmill.Store { return losesPaused{f} }},
		{"hands out backwards beside pauses", "pause",
			"claims while pauses come and go hand out each record once and in the order of its key",
			func(f mutants.File) outmill.Store { return allBackwards{f} }},
		{"drops pauses with a group", "pause", "DropGroup gives paused records back and leaves the pause",
			func(f mutants.File) outmill.Store { return dropsPauses{f} }},
		{"keeps paused records from expiring", "pause", "a paused record that expires goes dead",
			func(f mutants.File) outmill.Store { return expiresUnpaused{f} }},
		{"renews the time of a pause", "pause", "a second pause of the same scope keeps the time and replaces the name and the reason",
			func(f mutants.File) outmill.Store { return renewsPauses{f} }},
		{"lists pauses in any order", "pause", "Paused lists the pauses, sorted",
			func(f mutants.File) outmill.Store { return listsBackwards{f} }},
		{"names no pauses", "pause", "Groups names the pauses that concern a group",
			func(f mutants.File) outmill.Store { return namesNoPauses{f} }},
		{"has paused records due", "pause", "paused records are pending, and not due for OldestDue",
			func(f mutants.File) outmill.Store { return allDue{f} }},
		{"knows nothing due beside a pause", "pause", "OldestDue is that of records that a leased one of their key holds, also beside a pause",
			func(f mutants.File) outmill.Store { return noneDue{f} }},
		{"shows what pauses hold, or what keys do", "waiting",
			"FirstWaiting returns the first records that keys hold and that pauses hold, however many there are of the others",
			func(f mutants.File) outmill.Store { return showsHeld{f} }},
		{"tells its worker nothing of pauses", "pause", "LastPauses has the pauses that the last Claim or Extend has seen",
			func(f mutants.File) outmill.Store { return tellsNoPauses{f} }},
		{"tells its worker each time of new pauses", "pause", "LastPauses has the pauses that the last Claim or Extend has seen",
			func(f mutants.File) outmill.Store { return tellsAgain{f} }},
		{"takes any scope", "pause", "a scope or a name that is refused pauses and resumes nothing",
			pauses(func(s *roles.PauseScope) {
				if storekit.CheckPauseScope(*s) != nil {
					*s = roles.PauseScope{Topic: "any"}
				}
			})},
		{"takes any number of pauses", "pause", "a store has 1,000 pauses at most",
			func(f mutants.File) outmill.Store { return pausesMore{f} }},
		{"ignores the context", "pause", "pauses on a closed store, or in a context that has ended, are refused",
			func(f mutants.File) outmill.Store { return pausesLate{f} }},
	})
}

// pausesOtherwise changes the scope of each Pause and Resume.
type pausesOtherwise struct {
	mutants.File
	change func(*roles.PauseScope)
}

func (m pausesOtherwise) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	m.change(&scope)
	return m.File.Pause(ctx, scope, by, reason)
}

func (m pausesOtherwise) Resume(ctx context.Context, scope roles.PauseScope) (bool, error) {
	m.change(&scope)
	return m.File.Resume(ctx, scope)
}

type pausesNothing struct{ mutants.File }

func (pausesNothing) Pause(context.Context, roles.PauseScope, string, string) error { return nil }

// pausesHere keeps the pauses in its memory, and releases what it must not hand out.
type pausesHere struct {
	mutants.File
	pauses []roles.PauseInfo
}

func (m *pausesHere) Pause(_ context.Context, scope roles.PauseScope, _, _ string) error {
	m.pauses = append(m.pauses, roles.PauseInfo{PauseScope: scope, Number: 1})
	return nil
}

func (m *pausesHere) Resume(_ context.Context, scope roles.PauseScope) (bool, error) {
	before := len(m.pauses)
	m.pauses = slices.DeleteFunc(m.pauses, func(p roles.PauseInfo) bool { return p.PauseScope == scope })
	return len(m.pauses) < before, nil
}

func (m *pausesHere) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	list := roles.NewPauseList(1, slices.Clone(m.pauses))
	var back []outmill.Lease
	found = slices.DeleteFunc(found, func(r *outmill.Record) bool {
		if list.Covers(r) {
			back = append(back, r.Lease())
		}
		return list.Covers(r)
	})
	if err == nil {
		err = m.Release(ctx, back)
	}
	return found, err
}

// claimsUnordered claims without an order while anything is paused.
type claimsUnordered struct{ mutants.File }

func (m claimsUnordered) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	if list, err := m.Paused(ctx); err == nil && len(list) > 0 {
		req.Order, req.KeyPolicy = outmill.OrderNone, outmill.KeyBlock
	}
	return m.File.Claim(ctx, req)
}

type extendsUnpaused struct{ mutants.File }

func (m extendsUnpaused) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	if list, err := m.Paused(ctx); err == nil && len(list) > 0 {
		return nil, m.Release(ctx, leases)
	}
	return m.File.Extend(ctx, lease, leases)
}

// resumesAll ends one more pause.
type resumesAll struct{ mutants.File }

func (m resumesAll) Resume(ctx context.Context, scope roles.PauseScope) (bool, error) {
	ended, err := m.File.Resume(ctx, scope)
	list, listErr := m.Paused(ctx)
	if err != nil || listErr != nil || len(list) == 0 {
		return ended, err
	}
	return m.File.Resume(ctx, list[0].PauseScope)
}

// backwards hands out the records of a claim in the wrong order while nothing is paused.
type backwards struct{ mutants.File }

func (m backwards) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	if list, listErr := m.Paused(ctx); listErr == nil && len(list) == 0 {
		slices.Reverse(found)
	}
	return found, err
}

// allBackwards hands out all records at once, in the wrong order, so that each claim has several records
// of a key.
type allBackwards struct{ mutants.File }

func (m allBackwards) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	req.Limit = 1000
	found, err := m.File.Claim(ctx, req)
	slices.Reverse(found)
	return found, err
}

// losesPaused deletes a record with each Pause.
type losesPaused struct{ mutants.File }

func (m losesPaused) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	if list, err := m.List(ctx, outmill.ListQuery{Limit: 1}); err == nil && len(list) > 0 {
		_, _ = m.Delete(ctx, list[0].ID)
	}
	return m.File.Pause(ctx, scope, by, reason)
}

type dropsPauses struct{ mutants.File }

func (m dropsPauses) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	_, _ = m.Resume(ctx, roles.PauseScope{Group: group})
	return m.File.DropGroup(ctx, group)
}

type expiresUnpaused struct{ mutants.File }

func (m expiresUnpaused) ExpireDue(ctx context.Context, limit int) (int, error) {
	if list, err := m.Paused(ctx); err == nil && len(list) > 0 {
		return 0, nil
	}
	return m.File.ExpireDue(ctx, limit)
}

type renewsPauses struct{ mutants.File }

func (m renewsPauses) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	_, _ = m.Resume(ctx, scope)
	return m.File.Pause(ctx, scope, by, reason)
}

type listsBackwards struct{ mutants.File }

func (m listsBackwards) Paused(ctx context.Context) ([]roles.PauseInfo, error) {
	list, err := m.File.Paused(ctx)
	slices.Reverse(list)
	return list, err
}

type namesNoPauses struct{ mutants.File }

func (m namesNoPauses) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	groups, err := m.File.Groups(ctx)
	for i := range groups {
		groups[i].Pauses = nil
	}
	return groups, err
}

type allDue struct{ mutants.File }

func (m allDue) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	stats, err := m.File.Stats(ctx, limit)
	for i := range stats {
		if stats[i].OldestDue.IsZero() {
			stats[i].OldestDue = time.Now()
		}
	}
	return stats, err
}

type noneDue struct{ mutants.File }

func (m noneDue) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	stats, err := m.File.Stats(ctx, limit)
	if list, listErr := m.Paused(ctx); listErr == nil && len(list) > 0 {
		for i := range stats {
			stats[i].OldestDue = time.Time{}
		}
	}
	return stats, err
}

// showsHeld shows the first records of all that are held, together.
type showsHeld struct{ mutants.File }

func (m showsHeld) FirstWaiting(ctx context.Context, group, topic string, limit int) (storekit.Waiting, error) {
	found, err := m.File.FirstWaiting(ctx, group, topic, limit)
	found.Kinds = slices.DeleteFunc(found.Kinds, func(kind storekit.WaitingKind) bool {
		stage := kind.Records[0].Stage
		return stage != storekit.StageAside && stage != storekit.StageLeased && len(kind.Records) > 0 && slices.ContainsFunc(found.Kinds,
			func(other storekit.WaitingKind) bool {
				return other.Records[0].Stage == storekit.StageAside && other.More
			})
	})
	return found, err
}

type tellsNoPauses struct{ mutants.File }

func (m tellsNoPauses) LastPauses() *roles.PauseList { return nil }

type tellsAgain struct{ mutants.File }

func (m tellsAgain) LastPauses() *roles.PauseList {
	list := m.File.LastPauses()
	return roles.NewPauseList(list.Generation(), slices.Clone(list.All()))
}

type pausesMore struct{ mutants.File }

func (m pausesMore) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	if list, err := m.Paused(ctx); err == nil && len(list) >= roles.MaxPauses {
		return nil
	}
	return m.File.Pause(ctx, scope, by, reason)
}

type pausesLate struct{ mutants.File }

func (m pausesLate) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	return m.File.Pause(context.WithoutCancel(ctx), scope, by, reason)
}
