package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// TestRun_BrokenClocks tests stores in memory. After Elapse their clock differs from that of the
// process.
func TestRun_BrokenClocks(t *testing.T) {
	mutants.RequireExactly(t, sectionsNamed("clock", "round trips"), suite.Modes()[0], []mutants.Exact{
		{Name: "counts delays by the caller's clock", New: appendsInMemory(func(r *outmill.Record) {
			if r.Delay > 0 {
				r.DueAt, r.Delay = time.Now().Add(r.Delay), 0
			}
		}), Noticed: []string{
			"clock: delays and times to live count by the database's clock",
			"clock: no call sends the time of its process",
		}},
		{Name: "counts times to live by the caller's clock", New: appendsInMemory(func(r *outmill.Record) {
			if r.TimeToLive > 0 {
				r.ExpiresAt, r.TimeToLive = time.Now().Add(r.TimeToLive), 0
			}
		}), Noticed: []string{
			"clock: delays and times to live count by the database's clock",
			"clock: no call sends the time of its process",
		}},
		{Name: "sends the time of a record", New: appendsInMemory(func(r *outmill.Record) {
			if r.Delay == 0 {
				r.DueAt = time.Now()
			}
		}), Noticed: []string{"clock: no call sends the time of its process"}},
		{Name: "ends leases by the caller's clock", New: mutants.InMemory(func(m mutants.Memory) outmill.Store { return leasesByCaller{m} }),
			Noticed: []string{
				"clock: no call sends the time of its process", // because its leases have ended
				"clock: leases and retries end by the database's clock",
			}},
		{Name: "ends registrations by the caller's clock",
			New: mutants.InMemory(func(m mutants.Memory) outmill.Store { return registersByCaller{m} }), Noticed: []string{
				"clock: registrations end by the database's clock",
			}},
		{Name: "makes a round trip for each lease", New: mutants.InMemory(func(m mutants.Memory) outmill.Store { return settlesSingly{m} }),
			Noticed: []string{
				"round trips: Ack of a hundred leases takes about as many round trips as of ten",
				"round trips: Abandon of a hundred leases takes about as many round trips as of ten",
				"round trips: Fail of a hundred leases takes about as many round trips as of ten",
				"round trips: Release of a hundred leases takes about as many round trips as of ten",
				"round trips: Snooze of a hundred leases takes about as many round trips as of ten",
				"round trips: Extend of a hundred leases takes about as many round trips as of ten",
			}},
		{Name: "makes a round trip for each record", New: mutants.InMemory(func(m mutants.Memory) outmill.Store { return appendsEach{m} }),
			Noticed: []string{
				"round trips: an Append of a hundred records takes about as many round trips as one of ten",
			}},
	})
}

func sectionsNamed(names ...string) []suite.Section {
	return slices.DeleteFunc(sections(), func(s suite.Section) bool { return !slices.Contains(names, s.Name) })
}

// appendsInMemory makes mutants that change each record before they append it.
func appendsInMemory(change func(*outmill.Record)) func(*testing.T, suite.Options) suite.Harness {
	return mutants.InMemory(func(m mutants.Memory) outmill.Store { return changesRecords{m, change} })
}

type changesRecords struct {
	mutants.Memory
	change func(*outmill.Record)
}

func (m changesRecords) Append(ctx context.Context, records ...*outmill.Record) error {
	for _, r := range records {
		m.change(r)
	}
	return m.Memory.Append(ctx, records...)
}

// behind is the difference by which the caller's clock is behind the database's.
const behind = time.Hour

type leasesByCaller struct{ mutants.Memory }

func (m leasesByCaller) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	req.Lease = max(1, req.Lease-behind)
	return m.Memory.Claim(ctx, req)
}

type registersByCaller struct{ mutants.Memory }

func (m registersByCaller) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	for i := range regs {
		if regs[i].TTL > 0 {
			regs[i].TTL = max(1, regs[i].TTL-behind)
		}
	}
	return m.Memory.RegisterGroup(ctx, regs...)
}

type appendsEach struct{ mutants.Memory }

func (m appendsEach) Append(ctx context.Context, records ...*outmill.Record) error {
	return each(records, func(r *outmill.Record) error { return m.Memory.Append(ctx, r) })
}

// settlesSingly settles each lease with a call of its own.
type settlesSingly struct{ mutants.Memory }

func each[T any](list []T, fn func(one T) error) (err error) {
	for _, one := range list {
		err = errors.Join(err, fn(one))
	}
	return err
}

func (m settlesSingly) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	return each(leases, func(l outmill.Lease) error { return m.Memory.Ack(ctx, by, []outmill.Lease{l}) })
}

func (m settlesSingly) Release(ctx context.Context, leases []outmill.Lease) error {
	return each(leases, func(l outmill.Lease) error { return m.Memory.Release(ctx, []outmill.Lease{l}) })
}

func (m settlesSingly) Abandon(ctx context.Context, list []outmill.Settlement) error {
	return each(list, func(s outmill.Settlement) error { return m.Memory.Abandon(ctx, []outmill.Settlement{s}) })
}

func (m settlesSingly) Fail(ctx context.Context, list []outmill.Settlement) error {
	return each(list, func(s outmill.Settlement) error { return m.Memory.Fail(ctx, []outmill.Settlement{s}) })
}

func (m settlesSingly) Snooze(ctx context.Context, list []outmill.Settlement) error {
	return each(list, func(s outmill.Settlement) error { return m.Memory.Snooze(ctx, []outmill.Settlement{s}) })
}

func (m settlesSingly) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) (extended []outmill.Lease, err error) {
	err = each(leases, func(l outmill.Lease) error {
		valid, err := m.Memory.Extend(ctx, lease, []outmill.Lease{l})
		extended = append(extended, valid...)
		return err
	})
	return extended, err
}
