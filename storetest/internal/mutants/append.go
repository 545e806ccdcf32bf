package mutants

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill"
)

// Appends makes mutants that change each record before they append it.
func Appends(change func(*outmill.Record)) func(File) outmill.Store {
	return func(f File) outmill.Store { return appendsOtherwise{f, change} }
}

type appendsOtherwise struct {
	File
	change func(*outmill.Record)
}

func (m appendsOtherwise) Append(ctx context.Context, records ...*outmill.Record) error {
	changed := make([]*outmill.Record, len(records))
	for i, r := range records {
		if r != nil {
			clone := *r
			m.change(&clone)
			changed[i] = &clone
		}
	}
	err := m.File.Append(ctx, changed...)
	for i, r := range records {
		if r != nil {
			r.ID, r.MessageID, r.Duplicate = changed[i].ID, changed[i].MessageID, changed[i].Duplicate
		}
	}
	return err
}

// Commits makes mutants that commit the transaction of the caller.
func Commits(f File) outmill.Store { return commits{f} }

type commits struct{ File }

func (m commits) Append(ctx context.Context, records ...*outmill.Record) error {
	if err := m.File.Append(ctx, records...); err != nil {
		return err
	}
	if tx, err := m.TxOf(ctx); err == nil && tx != nil {
		return tx.(*sql.Tx).Commit()
	}
	return nil
}
