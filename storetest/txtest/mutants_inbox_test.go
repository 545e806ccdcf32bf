package txtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/mutants"
)

func brokenInboxes() []mutant {
	return []mutant{
		{"finds no duplicate", puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
			_, err := m.PutNote(ctx, note, wait)
			return false, err
		}), []string{
			"inbox: a duplicate leaves the transaction usable",
			"inbox: a note that is put again is a duplicate",
			"inbox: a transaction waits for the note of another one for a bounded time",
			"inbox: notes are deleted when their retention has passed, and count until then",
			"inbox: of two transactions with one note exactly one commits",
			"notes: a lost lease comes before a duplicate, and leaves the transaction usable",
			"notes: a message that was handled and not acked is a duplicate at any time later, whatever was done with its record",
			"notes: a message whose handler is stopped is handled once, also after something was done with its record",
		}},
		{"rolls back for a duplicate", puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
			duplicate, err := m.PutNote(ctx, note, wait)
			if tx, ok := m.Tx(ctx); ok && duplicate {
				return duplicate, tx.Rollback()
			}
			return duplicate, err
		}), []string{
			"inbox: a duplicate leaves the transaction usable",
			"inbox: of two transactions with one note exactly one commits",
			"notes: a lost lease comes before a duplicate, and leaves the transaction usable",
			"notes: a message that was handled and not acked is a duplicate at any time later, whatever was done with its record",
			"notes: a message whose handler is stopped is handled once, also after something was done with its record",
		}},
		{"notes outside of the transaction",
			puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
				if _, err := m.TxOf(ctx); err != nil {
					return false, err
				}
				return m.PutNote(context.Background(), note, wait)
			}), []string{
				"ended: PutNote and HasNote in a transaction that has ended are ErrInvalidTx, and nothing is noted",
				"inbox: a note is there when its transaction commits, and not before",
				"inbox: a rollback forgets the note",
				"inbox: a transaction waits for the note of another one for a bounded time",
				"notes: a handler that is stopped before its note, and goes on late, does nothing",
				"notes: a lost lease comes before a duplicate, and leaves the transaction usable",
				"notes: a message whose handler is stopped is handled once, also after something was done with its record",
				"notes: a note of a lease that was lost is ErrLeaseLost, and nothing is written",
			}},
		{"has notes that all consumers share",
			puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
				if note.Consumer != "" {
					note.Consumer = "billing"
				}
				return m.PutNote(ctx, note, wait)
			}), []string{
				"inbox: each consumer has notes of its own, and names are case-sensitive",
			}},
		{"ignores the case of names", puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
			note.Consumer, note.Key = strings.ToLower(note.Consumer), strings.ToLower(note.Key)
			return m.PutNote(ctx, note, wait)
		}), []string{
			"inbox: each consumer has notes of its own, and names are case-sensitive",
		}},
		{"keeps notes without a retention",
			puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
				if note.Retention == 0 {
					note.Retention = time.Hour
				}
				return m.PutNote(ctx, note, wait)
			}), []string{
				"inbox: a note that makes no sense is refused, and nothing is written",
			}},
		{"lets two handlers have one note", func(m mutants.Memory) outmill.Store { return looksFirst{m, handlersOf(m)} }, []string{
			"inbox: a duplicate leaves the transaction usable",
			"inbox: a note is there when its transaction commits, and not before",
			"inbox: a transaction waits for the note of another one for a bounded time",
			"inbox: of two transactions with one note exactly one commits",
			"notes: a handler that is stopped before its note, and goes on late, does nothing",
			"notes: a lost lease comes before a duplicate, and leaves the transaction usable",
			"notes: a message whose handler is stopped is handled once, also after something was done with its record",
			"notes: a note of a lease that was lost is ErrLeaseLost, and nothing is written",
		}},
		{"waits for a note without a bound", puts(func(m mutants.Memory, ctx context.Context, note roles.Note, _ time.Duration) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			return m.PutNote(ctx, note, time.Hour)
		}), []string{
			"inbox: a transaction waits for the note of another one for a bounded time",
			"notes: a message whose handler is stopped is handled once, also after something was done with its record",
		}},
		{"deletes notes early", puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
			note.Retention = min(note.Retention, time.Second)
			return m.PutNote(ctx, note, wait)
		}), []string{
			"inbox: notes are deleted when their retention has passed, and count until then",
			"notes: notes of records that are gone or processed are deleted after their retention, and others stay",
		}},
		{"never deletes a note", func(m mutants.Memory) outmill.Store { return keepsNotes{m} }, []string{
			"inbox: notes are deleted when their retention has passed, and count until then",
			"notes: a message that was handled and not acked is a duplicate at any time later, whatever was done with its record",
			"notes: notes of records that are gone or processed are deleted after their retention, and others stay",
			"notes: notes that stay keep no others from being deleted",
		}},
		{"deletes notes without a limit", func(m mutants.Memory) outmill.Store { return deletesAllNotes{m} }, []string{
			"inbox: notes are deleted when their retention has passed, and count until then",
		}},
		{"notes beside a foreign transaction",
			puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
				if _, err := m.TxOf(ctx); errors.Is(err, outmill.ErrForeignTx) {
					ctx = context.Background()
				}
				return m.PutNote(ctx, note, wait)
			}), []string{
				"inbox: PutNote with the transaction of another store is ErrForeignTx",
			}},
	}
}

type putNote func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error)

// puts makes mutants that put notes in a wrong way.
func puts(how putNote) func(mutants.Memory) outmill.Store {
	return func(m mutants.Memory) outmill.Store { return putsOtherwise{m, how} }
}

type putsOtherwise struct {
	mutants.Memory
	how putNote
}

func (m putsOtherwise) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
	return m.how(m.Memory, ctx, note, wait)
}

// looksFirst searches for a note, and writes it when the transaction commits.
type looksFirst struct {
	mutants.Memory
	handlers *handlers
}

// handlers wait for each other, so that both have searched before one of them writes.
type handlers struct {
	mu  sync.Mutex
	n   int
	met chan struct{}
}

var handlersByDB sync.Map

func handlersOf(m mutants.Memory) *handlers {
	found, _ := handlersByDB.LoadOrStore(m.DB, &handlers{met: make(chan struct{})})
	return found.(*handlers)
}

func (h *handlers) meet() {
	h.mu.Lock()
	if h.n++; h.n == 2 {
		close(h.met)
	}
	h.mu.Unlock()
	select {
	case <-h.met:
	case <-time.After(100 * time.Millisecond):
	}
}

func (m looksFirst) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
	if _, ok := m.Tx(ctx); !ok || storekit.CheckNote(note) != nil {
		return m.Memory.PutNote(ctx, note, wait)
	}
	found, err := m.HasNote(context.WithoutCancel(ctx), note.Consumer, note.Key)
	if err != nil || found {
		return found, err
	}
	m.handlers.meet()
	m.BeforeCommit(ctx, func() error {
		_, err := m.Memory.PutNote(context.Background(), note, wait)
		return err
	})
	return false, nil
}

type keepsNotes struct{ mutants.Memory }

func (keepsNotes) DeleteNotes(context.Context, int) (int, error) { return 0, nil }

type deletesAllNotes struct{ mutants.Memory }

func (m deletesAllNotes) DeleteNotes(ctx context.Context, _ int) (int, error) {
	return m.Memory.DeleteNotes(ctx, 1000)
}
