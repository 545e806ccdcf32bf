package driver_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// results are those of a statement.
type results = [][][]sqldriver.Value

func looks(ctx context.Context) func(tx driver.Tx) error {
	return func(tx driver.Tx) error {
		_, err := tx.Pausing(ctx, "g")
		return err
	}
}

// The first call refuses a database in which a page would not be of one moment, and a server whose locks are others. Once it was right,
// no call asks again.
func TestDatabase(t *testing.T) {
	t.Parallel()
	for remedy, row := range map[string][]sqldriver.Value{
		"SET READ_COMMITTED_SNAPSHOT ON": {int64(150), false, false},
		"SET COMPATIBILITY_LEVEL = 150":  {int64(120), true, false},
		"use package postgres":           {int64(150), true, true},
	} {
		f := &fake{unversioned: true}
		f.answer = func(name string) (results, error) {
			if name == "database" {
				return results{{row}}, nil
			}
			return nil, nil
		}
		d, _ := f.on(t)
		err := d.View(t.Context(), driver.Begin{}, looks(t.Context()))
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, remedy)
		require.Equal(t, []string{"state", "database"}, f.names)
		require.ErrorIs(t, d.Update(t.Context(), driver.Begin{}, looks(t.Context())), outmill.ErrInvalidConfig)

		row = []sqldriver.Value{int64(130), true, false}
		f.names = nil
		for range 2 {
			require.NoError(t, d.View(t.Context(), driver.Begin{}, looks(t.Context())))
		}
		require.Equal(t, []string{"state", "database", "pausing", "state", "pausing"}, f.names)
	}
}

// Where the server does not know a name, the call says what is in the place of the schema.
func TestSchema_Errors(t *testing.T) {
	t.Parallel()
	for want, found := range map[error]int64{outmill.ErrSchemaMissing: 0, outmill.ErrSchemaForeign: 1, outmill.ErrSchemaNewer: 2} {
		for _, number := range []int32{207, 208, 2715} {
			f := &fake{}
			f.answer = func(name string) (results, error) {
				switch name {
				case "has_meta":
					return results{{{found}}}, nil
				case "version":
					return results{{{int64(9), int64(9)}}}, nil
				}
				return nil, mssql.Error{Number: number}
			}
			d, db := f.on(t)
			own, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, read := d.Read(t.Context(), []driver.Row{{}}, 0)
			_, acked := d.Ack(t.Context(), []outmill.Lease{{}}, false)
			for _, err := range []error{
				d.View(t.Context(), driver.Begin{}, looks(t.Context())), d.Update(t.Context(), driver.Begin{}, looks(t.Context())), read, acked,
			} {
				require.ErrorIs(t, err, want)
				require.ErrorAs(t, err, new(mssql.Error))
			}
			require.NoError(t, own.Rollback())
			if errors.Is(want, outmill.ErrSchemaForeign) {
				require.ErrorIs(t, d.Ensure(t.Context()), want)
				require.ErrorContains(t, d.Ensure(t.Context()), "[dbo].[OutboxMeta]")
			}
		}
	}
}

// In a caller's transaction the same is asked there: the pool may have no other connection.
func TestSchema_ErrorsWithin(t *testing.T) {
	t.Parallel()
	f := &fake{}
	f.answer = func(name string) (results, error) {
		switch name {
		case "state":
			return nil, mssql.Error{Number: 208}
		case "has_meta":
			return results{{{int64(0)}}}, nil
		}
		return nil, nil
	}
	d, db := f.on(t)
	db.SetMaxOpenConns(1)
	own, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, d.Within(t.Context(), own, looks(t.Context())), outmill.ErrSchemaMissing)
	require.Equal(t, []string{"begin", "save", "state", "undo", "has_meta"}, f.names)
	require.NoError(t, own.Rollback())
}

// A View has no transaction: it locks nothing, and each of its statements sees a moment of its own.
func TestView(t *testing.T) {
	t.Parallel()
	f, failed := &fake{}, false
	f.answer = func(name string) (results, error) {
		if name == "pausing" && !failed {
			failed = true
			return nil, mssql.Error{Number: 1205}
		}
		return nil, nil
	}
	d, _ := f.on(t)
	require.NoError(t, d.View(t.Context(), driver.Begin{}, looks(t.Context())))
	require.Equal(t, []string{"state", "pausing", "state", "pausing"}, f.names)
}

// A transaction whose context has ended is rolled back, and its commit is not sent.
func TestUpdate_ContextEnds(t *testing.T) {
	t.Parallel()
	f := &fake{}
	d, _ := f.on(t)
	ctx, end := context.WithCancel(t.Context())
	err := d.Update(ctx, driver.Begin{}, func(driver.Tx) error {
		end()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, storekit.ErrCommitInDoubt)
	require.NotContains(t, f.names, "commit")
}

// InTx runs once, and returns the error of its function as it is. What calls in it have left for the commit runs behind it.
func TestInTx(t *testing.T) {
	t.Parallel()
	f, committed := &fake{}, 0
	d, _ := f.on(t)
	within := func(ctx context.Context, tx *sql.Tx) error {
		return d.Within(ctx, tx, func(tx driver.Tx) error {
			tx.OnCommit(func() { committed++ })
			return nil
		})
	}
	require.NoError(t, d.InTx(t.Context(), within))
	require.Equal(t, []string{"begin", "save", "state", "commit"}, f.names)
	require.Equal(t, 1, committed)

	f.names = nil
	deadlock := mssql.Error{Number: 1205}
	require.Equal(t, deadlock, d.InTx(t.Context(), func(context.Context, *sql.Tx) error { return deadlock }))
	require.Equal(t, []string{"begin", "rollback"}, f.names)

	f.commit = mssql.Error{Number: 3902, Message: "refused"}
	require.ErrorContains(t, d.InTx(t.Context(), within), "outmill/sqlserver: fake transaction: ")
	require.Equal(t, 1, committed)
}

// What Transact commits has proven that the transaction still exists: the server may have ended it in the function.
func TestTransact_Ended(t *testing.T) {
	t.Parallel()
	f := &fake{}
	f.answer = func(name string) (results, error) {
		if name == "prove" {
			return nil, mssql.Error{Message: "server does not have an active transaction"}
		}
		return nil, nil
	}
	d, _ := f.on(t)
	err := d.Transact(t.Context(), func(context.Context) error { return nil })
	require.ErrorIs(t, err, outmill.ErrInvalidTx)
	require.Equal(t, []string{"begin", "abort", "prove", "rollback"}, f.names)
}

// A note has an answer for each outcome, and each statement proves the caller's transaction.
func TestNote(t *testing.T) {
	t.Parallel()
	f, answer := &fake{}, int64(0)
	f.answer = func(string) (results, error) { return results{{{answer}}}, nil }
	d, db := f.on(t)
	own, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	note := func() (bool, error) {
		return d.Note(t.Context(), own, driver.Entry{Kind: "note", Key: "k"}, time.Hour, time.Second, outmill.Lease{ID: outmill.NewWorkItemID()})
	}
	for want, given := range map[error]int64{driver.ErrBusy: -1, outmill.ErrLeaseLost: -2} {
		answer = given
		_, err := note()
		require.ErrorIs(t, err, want)
	}
	for given, want := range map[int64]bool{0: false, 1: true} {
		answer = given
		added, err := note()
		require.NoError(t, err)
		require.Equal(t, want, added)
	}
	for _, text := range f.texts {
		require.Contains(t, text, "IF @@TRANCOUNT = 0 THROW 50902")
	}
	require.NoError(t, own.Rollback())
}

// An ack returns the steps of joins that it has left. A lost answer is a doubt, and the ack is not sent again.
func TestAck(t *testing.T) {
	t.Parallel()
	step, plain := outmill.Lease{ID: outmill.NewWorkItemID()}, outmill.Lease{ID: outmill.NewWorkItemID()}
	f := &fake{}
	f.answer = func(string) (results, error) { return results{{{step.ID[:]}}}, nil }
	d, _ := f.on(t)
	left, err := d.Ack(t.Context(), []outmill.Lease{plain, step}, false)
	require.NoError(t, err)
	require.Equal(t, []outmill.Lease{step}, left)

	f.names = nil
	f.answer = func(string) (results, error) { return nil, mssql.Error{Number: 596, Class: 21} }
	_, err = d.Ack(t.Context(), []outmill.Lease{plain}, false)
	require.ErrorIs(t, err, storekit.ErrCommitInDoubt)
	require.Equal(t, []string{"ack"}, f.names)
}

// A group is quiet that has nothing, as far as the process knows the schema and the pauses.
func TestQuiet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, pauses int64
		empty, want     bool
	}{{1, 6, true, true}, {1, 6, false, false}, {1, 7, true, false}, {2, 6, true, false}} {
		f := &fake{}
		f.answer = func(string) (results, error) { return results{{{c.version, c.version, c.pauses, c.empty}}}, nil }
		d, _ := f.on(t)
		quiet, err := d.Quiet(t.Context(), driver.Topics{Group: "g"}, 6)
		require.NoError(t, err)
		require.Equal(t, c.want, quiet)
	}
}

// A claim without an order locks the held rows that it reads, and leaves out those of others. One in order has locked the line, and reads
// them as they were committed.
func TestPage_Held(t *testing.T) {
	t.Parallel()
	f := &fake{}
	f.answer = func(name string) (results, error) {
		if name == "page_held" || name == "page" {
			return results{{{int64(0), int64(9_000_000)}}}, nil
		}
		return nil, nil
	}
	d, _ := f.on(t)
	read := func(run func(context.Context, driver.Begin, func(driver.Tx) error) error, ask driver.Ask) string {
		f.names, f.texts = nil, nil
		require.NoError(t, run(t.Context(), driver.Begin{}, func(tx driver.Tx) error {
			_, err := tx.Page(t.Context(), ask)
			return err
		}))
		return f.texts[len(f.texts)-1]
	}
	const locked = "WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)\n\tWHERE r.grp = CAST(@group AS NVARCHAR(255)) AND r.topic = " +
		"CAST(@topic AS NVARCHAR(260)) AND r.stage = 1 AND r.under = n.name"
	require.Contains(t, read(d.Update, driver.Ask{Limit: 10}), locked)
	require.NotContains(t, read(d.Update, driver.Ask{Limit: 10, Keys: true, Lock: true}), locked)
	require.NotContains(t, read(d.View, driver.Ask{Limit: 10}), "UPDLOCK")
}

// What doctor finds: a right that is missing, an index that is missing or disabled, and what it may not see.
func TestExamine(t *testing.T) {
	t.Parallel()
	f := &fake{}
	d, _ := f.on(t)
	indexes, err := d.IndexNames()
	require.NoError(t, err)
	require.Contains(t, indexes, "Outbox_line")
	f.answer = func(name string) (results, error) {
		switch name {
		case "has_meta":
			return results{{{int64(2)}}}, nil
		case "version":
			return results{{{int64(1), int64(1)}}}, nil
		case "examined_user":
			return results{{{"app", true}}}, nil
		case "lacking_rights":
			return results{{{"[dbo].[Outbox]", "OBJECT", "UPDATE", int64(7)}, {"[dbo].[OutboxNew]", "TYPE", "EXECUTE", nil}}}, nil
		case "usable_indexes":
			var rows [][]sqldriver.Value
			for _, name := range indexes[1:] {
				rows = append(rows, []sqldriver.Value{name})
			}
			return results{rows}, nil
		case "old_transactions":
			return results{{{int64(51), "shop", "sleeping", int64(60_000)}}}, nil
		case "lock_waits":
			return nil, mssql.Error{Number: 300}
		}
		return nil, nil
	}
	found, err := d.Examine(t.Context(), roles.ExamineRequest{OpenTransaction: time.Second, LockWait: time.Second})
	require.NoError(t, err)
	var codes []string
	for _, finding := range found.Findings {
		codes = append(codes, finding.Code+" "+finding.Subject)
	}
	require.Equal(t, []string{
		"right_missing UPDATE ON [dbo].[Outbox]", "type_missing [dbo].[OutboxNew]", "index_missing " + indexes[0],
		"old_transaction session 51 (shop)",
	}, codes)
	require.Len(t, found.Unchecked, 1)
}
