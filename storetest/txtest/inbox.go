package txtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func inboxSentences() []sentence {
	return []sentence{
		{"a note that is put again is a duplicate", noteTwice},
		{"a duplicate leaves the transaction usable", noteTwiceInTx},
		{"a note is there when its transaction commits, and not before", noteCommits},
		{"a rollback forgets the note", noteRollsBack},
		{"each consumer has notes of its own, and names are case-sensitive", noteOfConsumers},
		{"a note that makes no sense is refused, and nothing is written", noteInvalid},
		{"of two transactions with one note exactly one commits", noteRace},
		{"a transaction waits for the note of another one for a bounded time", noteBusy},
		{"notes are deleted when their retention has passed, and count until then", notesDeleted},
		{"PutNote with the transaction of another store is ErrForeignTx", noteForeign},
	}
}

func (e *env) notes() roles.Inbox {
	e.T.Helper()
	found, ok := outmill.As[roles.Inbox](e.Store)
	require.True(e.T, ok, "the store is no roles.Inbox")
	return found
}

func noteOf(key string) roles.Note {
	return roles.Note{Consumer: "billing", Key: key, Retention: retention}
}

func (e *env) put(ctx context.Context, note roles.Note) (duplicate bool) {
	e.T.Helper()
	duplicate, err := e.notes().PutNote(ctx, note, soon)
	require.NoError(e.T, err, "PutNote")
	return duplicate
}

func (e *env) has(ctx context.Context, consumer, key string) bool {
	e.T.Helper()
	found, err := e.notes().HasNote(ctx, consumer, key)
	require.NoError(e.T, err, "HasNote")
	return found
}

func noteTwice(e *env) {
	require.False(e.T, e.has(e.Ctx, "billing", "m1"))
	require.False(e.T, e.put(e.Ctx, noteOf("m1")))
	require.True(e.T, e.put(e.Ctx, noteOf("m1")))
	require.True(e.T, e.has(e.Ctx, "billing", "m1"))
	require.False(e.T, e.put(e.Ctx, noteOf("m2")))
	require.True(e.T, e.on(e.Reopen()).put(e.Ctx, noteOf("m2")))
}

func noteTwiceInTx(e *env) {
	require.False(e.T, e.put(e.Ctx, noteOf("m1")))
	ctx, commit, _ := e.Begin()
	require.True(e.T, e.put(ctx, noteOf("m1")))
	require.False(e.T, e.put(ctx, noteOf("m2")))
	require.True(e.T, e.put(ctx, noteOf("m2")), "it is noted in this transaction")
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "r1")))
	commit()
	require.True(e.T, e.has(e.Ctx, "billing", "m2"))
	require.Equal(e.T, []string{"r1"}, suite.Names(e.List(outmill.ListQuery{})))
}

func noteCommits(e *env) {
	other := e.on(e.Reopen())
	ctx, commit, _ := e.Begin()
	require.False(e.T, e.put(ctx, noteOf("m1")))
	require.True(e.T, e.has(ctx, "billing", "m1"))
	require.False(e.T, other.has(e.Ctx, "billing", "m1"), "before the commit")
	commit()
	require.True(e.T, other.has(e.Ctx, "billing", "m1"))
}

func noteRollsBack(e *env) {
	ctx, _, rollback := e.Begin()
	require.False(e.T, e.put(ctx, noteOf("m1")))
	rollback()
	require.False(e.T, e.has(e.Ctx, "billing", "m1"))
	require.False(e.T, e.put(e.Ctx, noteOf("m1")))
}

func noteOfConsumers(e *env) {
	for _, consumer := range []string{"billing", "Billing", "billing é", "billing e"} {
		note := noteOf("m1")
		note.Consumer = consumer
		require.False(e.T, e.put(e.Ctx, note), consumer)
	}
	require.False(e.T, e.put(e.Ctx, noteOf("M1")))
	require.False(e.T, e.has(e.Ctx, "BILLING", "m1"))
}

func noteInvalid(e *env) {
	for field, note := range map[string]roles.Note{
		"consumer":  {Key: "m1", Retention: retention},
		"key":       {Consumer: "c", Key: " m1", Retention: retention},
		"note key":  {Consumer: "c", Key: strings.Repeat("k", 256), Retention: retention},
		"retention": {Consumer: "c", Key: "m1"},
	} {
		_, err := e.notes().PutNote(e.Ctx, note, soon)
		require.ErrorIs(e.T, err, outmill.ErrInvalidRecord)
		require.ErrorContains(e.T, err, field)
	}
	require.False(e.T, e.put(e.Ctx, roles.Note{Consumer: strings.Repeat("ä", 255), Key: strings.Repeat("ä", 255), Retention: retention}))
}

// noteRace runs transactions that note one message at the same time. One commits, and the others
// find a duplicate or are repeated.
func noteRace(e *env) {
	const racers = 4
	results := make(chan error, racers)
	for range racers {
		store := e.Reopen()
		go func() { results <- noteOnce(e.Ctx, store) }()
	}
	for range racers {
		require.NoError(e.T, <-results)
	}
	require.Equal(e.T, []string{"effect"}, suite.Names(e.List(outmill.ListQuery{})))
}

// noteOnce appends a record in the transaction that puts the note.
func noteOnce(ctx context.Context, store outmill.Store) error {
	notes, _ := outmill.As[roles.Inbox](store)
	transactor, _ := outmill.As[roles.Transactor](store)
	for {
		err := transactor.Transact(ctx, func(ctx context.Context) error {
			duplicate, err := notes.PutNote(ctx, noteOf("m1"), soon)
			if err != nil || duplicate {
				return err
			}
			return store.Append(ctx, suite.Rec(orders, "effect"))
		})
		if !errors.Is(err, roles.ErrNoteBusy) {
			return err
		}
	}
}

func noteBusy(e *env) {
	ctx, commit, _ := e.Begin()
	require.False(e.T, e.put(ctx, noteOf("m1")))
	other := e.on(e.Reopen())
	e.promptly("a note beside an open transaction with the same one", func(e *env) {
		second, _, rollback := other.Begin()
		_, err := other.notes().PutNote(second, noteOf("m1"), 20*time.Millisecond)
		require.ErrorIs(e.T, err, roles.ErrNoteBusy)
		rollback()
		third, commitThird, _ := other.Begin()
		require.False(e.T, other.put(third, noteOf("m2")), "another message has no need to wait")
		commitThird()
	})
	commit()
	require.True(e.T, other.put(e.Ctx, noteOf("m1")))
}

func notesDeleted(e *env) {
	for _, key := range []string{"m1", "m2", "m3"} {
		require.False(e.T, e.put(e.Ctx, noteOf(key)))
	}
	e.Elapse(retention / 2)
	late := noteOf("late")
	require.False(e.T, e.put(e.Ctx, late))
	n, err := e.notes().DeleteNotes(e.Ctx, 10)
	require.NoError(e.T, err)
	require.Zero(e.T, n)
	require.True(e.T, e.put(e.Ctx, noteOf("m1")))
	e.Elapse(retention/2 + time.Second)
	// An index of the engine may delete some of them, too.
	n, err = e.notes().DeleteNotes(e.Ctx, 2)
	require.NoError(e.T, err)
	require.LessOrEqual(e.T, n, 2)
	n, err = e.notes().DeleteNotes(e.Ctx, 2)
	require.NoError(e.T, err)
	require.LessOrEqual(e.T, n, 1)
	require.False(e.T, e.has(e.Ctx, "billing", "m1"))
	require.True(e.T, e.has(e.Ctx, "billing", "late"))
}

func noteForeign(e *env) {
	_, err := e.notes().PutNote(suite.Foreign(e.Ctx), noteOf("m1"), soon)
	require.ErrorIs(e.T, err, outmill.ErrForeignTx)
	require.False(e.T, e.has(e.Ctx, "billing", "m1"))
}
