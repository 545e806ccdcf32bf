package memdriver_test

import (
	"context"
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/txtest"
)

// txSuite leaves out what only the queue's suite has.
func txSuite(suite storetest.Engine) storetest.Engine {
	suite.Unsupported = nil
	return suite
}

func TestTransactions(t *testing.T) { txtest.Run(t, txSuite(suiteOf(0, nil))) }

func TestTransactions_Loser(t *testing.T) { txtest.Run(t, txSuite(suiteOf(0, loses))) }

func TestTransactions_Interleaved(t *testing.T) {
	txtest.Run(t, txSuite(suiteInterleaved(0, again)))
}

// EndTx ends transactions as their callers do: memory ends none by itself.
func (h harness) EndTx(outmill.Store) []storetest.TxEnd {
	end := func(by func(*memdriver.Tx) error) func(ctx context.Context) {
		return func(ctx context.Context) {
			tx, err := h.store.TxOf(ctx)
			if err == nil {
				err = by(tx.(*memdriver.Tx))
			}
			if err != nil {
				h.t.Fatal(err)
			}
		}
	}
	return []storetest.TxEnd{
		{Name: "a rollback", End: end((*memdriver.Tx).Rollback)},
		{Name: "a commit", Commits: true, End: end((*memdriver.Tx).Commit)},
	}
}

// Passing is what an append gets whose dedup key another open transaction has.
func (h harness) Passing(ctx context.Context, s outmill.Store) error {
	other := h.store.db.Begin()
	record := func() *outmill.Record { return &outmill.Record{Topic: "passing", DedupKey: "key"} }
	if err := h.store.Append(h.store.WithTx(h.t.Context(), other), record()); err != nil {
		h.t.Fatal(err)
	}
	err := s.Append(ctx, record())
	if err := other.Rollback(); err != nil {
		h.t.Fatal(err)
	}
	return err
}
