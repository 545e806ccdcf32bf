package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_BrokenReceipts(t *testing.T) {
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"names one group only", "receipt", "Append says which groups a record reaches, and under which id each",
			reports(func(r *outmill.Record) { r.CopiedTo = nil })},
		{"names ids that nobody has", "receipt", "Append says which groups a record reaches, and under which id each",
			reports(func(r *outmill.Record) {
				r.ID = outmill.NewWorkItemID()
			})},
		{"renames copies when a group comes", "receipt", "the ids that Append has named stay those of the records while groups come and go",
			func(f mutants.File) outmill.Store { return &renames{File: f} }},
		{"believes the writer about groups", "receipt", "Append says of a record that it waits for a group", believes},
		{"reads the caller's clock", "receipt", "Append says when it created the records, in a transaction of the caller too",
			reports(func(r *outmill.Record) { r.CreatedAt = time.Now() })},
		{"names a group for duplicates", "receipt", "Append says of a duplicate that no group has it",
			reports(func(r *outmill.Record) { r.Group = suite.Group })},
		{"reports before it writes", "receipt", "an Append that fails changes no record",
			func(f mutants.File) outmill.Store { return reportsEarly{f} }},
	})
}

func reports(change func(*outmill.Record)) func(mutants.File) outmill.Store {
	return func(f mutants.File) outmill.Store { return reportsOtherwise{f, change} }
}

// reportsOtherwise reports something else about the records than it did.
type reportsOtherwise struct {
	mutants.File
	change func(*outmill.Record)
}

func (m reportsOtherwise) Append(ctx context.Context, records ...*outmill.Record) error {
	err := m.File.Append(ctx, records...)
	if err == nil {
		for _, r := range records {
			m.change(r)
		}
	}
	return err
}

// renames does not find copies by the ids that Append has named once another group has registered.
type renames struct {
	mutants.File
	mu    sync.Mutex
	named []outmill.WorkItemID
	gone  []outmill.WorkItemID
}

func (m *renames) Append(ctx context.Context, records ...*outmill.Record) error {
	err := m.File.Append(ctx, records...)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		for _, group := range r.CopiedTo {
			m.named = append(m.named, outmill.CopyID(r.ID, group))
		}
	}
	return err
}

func (m *renames) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	m.mu.Lock()
	m.gone = slices.Clone(m.named)
	m.mu.Unlock()
	return m.File.RegisterGroup(ctx, regs...)
}

func (m *renames) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	m.mu.Lock()
	gone := slices.Contains(m.gone, id)
	m.mu.Unlock()
	if gone {
		return nil, outmill.ErrNotFound
	}
	return m.File.Get(ctx, id)
}

func believes(f mutants.File) outmill.Store { return believesWriter{f} }

// believesWriter does not change the groups that the caller set in the records.
type believesWriter struct{ mutants.File }

func (m believesWriter) Append(ctx context.Context, records ...*outmill.Record) error {
	before := make([]outmill.Record, len(records))
	for i, r := range records {
		before[i] = *r
	}
	err := m.File.Append(ctx, records...)
	for i, r := range records {
		r.Group, r.CopiedTo = before[i].Group, before[i].CopiedTo
	}
	return err
}

// reportsEarly sets the ids of records before it knows whether Append succeeds.
type reportsEarly struct{ mutants.File }

func (m reportsEarly) Append(ctx context.Context, records ...*outmill.Record) error {
	for _, r := range records {
		if r != nil && r.ID.IsZero() {
			r.ID = outmill.NewWorkItemID()
		}
	}
	return m.File.Append(ctx, records...)
}
