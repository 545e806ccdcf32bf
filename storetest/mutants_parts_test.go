package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_BrokenParts(t *testing.T) {
	oneTenant := mutants.Appends(func(r *outmill.Record) { r.TenantID = "one" })
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"takes a share of no part, without an order", "parts", "a claim takes as much of each part, without an order", oneTenant},
		{"takes a share of no part, by key", "parts", "a claim takes as much of each part, by key", oneTenant},
		{"has a small tenant wait", "parts",
			"ten records of a tenant beside thousands of another come within five claims, if their parts differ, without an order", oneTenant},
		{"has a small tenant wait, by key", "parts",
			"ten records of a tenant beside thousands of another come within five claims, if their parts differ, by key", oneTenant},
		{"begins with the same part again and again", "parts", "a claim goes on with the parts that the one before has not served", oneTenant},
		{"ignores full parts", "parts", "a claim leaves out the parts that are full, and takes no more of a part than its limit",
			claims(func(r *outmill.ClaimRequest) { r.Full = nil })},
		{"ignores the limit of parts", "parts", "a claim leaves out the parts that are full, and takes no more of a part than its limit",
			claims(func(r *outmill.ClaimRequest) { r.PartLimit = 0 })},
		{"ignores the limit of parts that have more", "parts", "a claim of parts that have more than the limit of a part ends, by key",
			claims(func(r *outmill.ClaimRequest) { r.PartLimit = 0 })},
		{"ignores the bytes of a claim of parts", "parts",
			"a claim of parts that have more than its bytes ends, and all of them come, without an order",
			claims(func(r *outmill.ClaimRequest) { r.MaxBytes = 0 })},
		{"hands out what has expired in parts", "parts", "a claim passes over thousands of expired records of some parts, by key",
			mutants.Appends(func(r *outmill.Record) { r.TimeToLive = 0 })},
		{"limits topics that are not fair", "parts", "a topic that is not fair has no parts, so neither Full nor PartLimit has an effect",
			claims(func(r *outmill.ClaimRequest) {
				if r.PartLimit > 0 {
					r.Limit = r.PartLimit
				}
			})},
		{"has an order for fair topics", "parts", "a claim in the order of a fair topic is refused",
			claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone })},
		{"ignores keys in parts", "parts", "due again, leased or held, each record of each part comes, in the order of its key, by key",
			claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone })},
		{"acks nothing in parts", "parts", "due again, leased or held, each record of each part comes, in the order of its key, without an order",
			func(f mutants.File) outmill.Store { return losesAcks{f} }},
		{"changes nothing", "parts", "the fair topics of a database change only while the topics that change have nothing undelivered",
			func(f mutants.File) outmill.Store { return setsNothing{f} }},
		{"takes other fair topics", "parts",
			"a store with other fair topics than the database neither appends nor claims, and shows what there is",
			func(f mutants.File) outmill.Store { return allowsOthers{f} }},
		{"sets fair topics with each Ensure", "parts", "the first Ensure with fair topics sets them, and a later one changes nothing",
			func(f mutants.File) outmill.Store { return allowsOthers{f} }},
		{"shows each part", "parts", "Stats counts the records of all parts of a topic as one",
			func(f mutants.File) outmill.Store { return countsTwice{f} }},
		{"pauses nothing of a part", "parts", "a pause of a tenant stops its records only, and the others of its part come", oneTenant},
		{"gives nothing back to a part", "parts", "what waits for a first group, or is given back by one, is delivered in its part",
			func(f mutants.File) outmill.Store { return dropsNothing{f} }},
		{"holds records of parts behind keys", "parts", "a claim without an order takes what claims by key hold, in each part",
			claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderKey })},
		{"shows one part after the other", "parts",
			"FirstWaiting returns what was appended first, of whichever part, and counts what is before a record",
			func(f mutants.File) outmill.Store { return showsByPart{f} }},
	})
}

// showsByPart shows the first of each kind in the order of their tenants.
type showsByPart struct{ mutants.File }

func (m showsByPart) FirstWaiting(ctx context.Context, group, topic string, limit int) (storekit.Waiting, error) {
	found, err := m.File.FirstWaiting(ctx, group, topic, roles.MaxExamined)
	for i, kind := range found.Kinds {
		slices.SortStableFunc(kind.Records, func(a, b storekit.WaitingRecord) int { return cmp.Compare(a.TenantID, b.TenantID) })
		found.Kinds[i].More = len(kind.Records) >= limit
		found.Kinds[i].Records = kind.Records[:min(limit, len(kind.Records))]
	}
	return found, err
}

type dropsNothing struct{ mutants.File }

func (dropsNothing) DropGroup(context.Context, string) (outmill.Dropped, error) {
	return outmill.Dropped{}, nil
}

type setsNothing struct{ mutants.File }

func (setsNothing) SetFairTopics(context.Context) error { return nil }

// allowsOthers appends nothing, and says that it has.
type allowsOthers struct{ mutants.File }

func (m allowsOthers) Append(ctx context.Context, records ...*outmill.Record) error {
	if err := m.File.Append(ctx, records...); !errors.Is(err, outmill.ErrFairTopics) {
		return err
	}
	return nil
}

// countsTwice lists each topic twice.
type countsTwice struct{ mutants.File }

func (m countsTwice) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	stats, err := m.File.Stats(ctx, limit)
	return append(stats, stats...), err
}
