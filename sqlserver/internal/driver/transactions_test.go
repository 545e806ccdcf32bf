package driver_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// errRefused is one of the functions that a transaction runs.
var errRefused = errors.New("refused")

// An Update runs again after a deadlock and after a lost connection, and what follows the commit runs once.
func TestUpdate_RunsAgain(t *testing.T) {
	t.Parallel()
	for _, passing := range []error{mssql.Error{Number: 1205}, io.ErrUnexpectedEOF} {
		f, failed, committed := &fake{}, false, 0
		f.answer = func(name string) ([][][]sqldriver.Value, error) {
			if name == "pausing" && !failed {
				failed = true
				return nil, passing
			}
			return nil, nil
		}
		d, _ := f.on(t)
		require.NoError(t, d.Update(t.Context(), driver.Begin{}, func(tx driver.Tx) error {
			tx.OnCommit(func() { committed++ })
			require.Equal(t, driver.Generations{Routes: 5, Pauses: 6}, tx.State().Generations)
			_, err := tx.Pausing(t.Context(), "g")
			return err
		}))
		require.Equal(t, []string{"begin", "state", "pausing", "rollback", "begin", "state", "pausing", "commit"}, f.names)
		require.Equal(t, 1, committed)
	}
}

// An error of the commit is a doubt, unless the server has refused it. It never runs again: the second run would not know the first.
func TestUpdate_Commit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		doubt bool
	}{{io.ErrUnexpectedEOF, true}, {mssql.Error{Number: 1205, Class: 13}, false}, {mssql.Error{Number: 596, Class: 21}, true}} {
		f, committed := &fake{commit: c.err}, 0
		d, _ := f.on(t)
		err := d.Update(t.Context(), driver.Begin{}, func(tx driver.Tx) error {
			tx.OnCommit(func() { committed++ })
			return nil
		})
		require.Error(t, err)
		require.Equal(t, c.doubt, errors.Is(err, storekit.ErrCommitInDoubt), "%v", c.err)
		require.Equal(t, []string{"begin", "state", "commit"}, f.names)
		require.Zero(t, committed)
	}
}

// A call in a caller's transaction proves with each statement that there is one, and undoes what it has done if it fails.
func TestWithin(t *testing.T) {
	t.Parallel()
	f := &fake{}
	d, db := f.on(t)
	own, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	call := func(result error) error {
		return d.Within(t.Context(), own, func(tx driver.Tx) error {
			require.NoError(t, tx.Put(t.Context(), driver.Entry{Kind: "kind", Key: "key"}))
			return result
		})
	}
	require.NoError(t, call(nil))
	require.ErrorIs(t, call(errRefused), errRefused)
	require.Equal(t, []string{"begin", "save", "state", "put", "save", "state", "put", "undo"}, f.names)
	for _, text := range f.texts {
		begin := "SET NOCOUNT ON;\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\nIF @@TRANCOUNT = 0 THROW 50902"
		require.True(t, strings.HasPrefix(text, begin), text)
	}
	f.answer = func(string) ([][][]sqldriver.Value, error) { return nil, mssql.Error{Number: 50902} }
	require.ErrorIs(t, call(nil), outmill.ErrInvalidTx)
	require.NoError(t, own.Rollback())
	require.ErrorIs(t, call(nil), outmill.ErrInvalidTx)
}

// Transact returns the error of its function as it is, runs again where that passes, and runs what calls in it have left for the commit.
func TestTransact(t *testing.T) {
	t.Parallel()
	f, runs, committed := &fake{}, 0, 0
	d, _ := f.on(t)
	require.NoError(t, d.Transact(t.Context(), func(ctx context.Context) error {
		caller, err := d.TxOf(ctx)
		require.NoError(t, err)
		require.IsType(t, &sql.Tx{}, caller)
		err = d.Within(ctx, caller, func(tx driver.Tx) error {
			tx.OnCommit(func() { committed++ })
			return nil
		})
		if runs++; runs == 1 {
			return errors.Join(err, mssql.Error{Number: 1205})
		}
		return err
	}))
	require.Equal(t, 2, runs)
	require.Equal(t, 1, committed)
	require.Equal(t, []string{"begin", "abort", "save", "state", "rollback", "begin", "abort", "save", "state", "prove", "commit"}, f.names)
	require.Equal(t, errRefused, d.Transact(t.Context(), func(context.Context) error { return errRefused }))
}

// A page has its results one behind the other: whether the line is locked, what has come, and the kinds of its rows.
func TestPage(t *testing.T) {
	t.Parallel()
	f := &fake{}
	d, _ := f.on(t)
	line, id := driver.Line{Group: "g", Topic: "orders", Part: 3}, outmill.NewWorkItemID()
	none := make([]byte, 16)
	row := func(kind, seq int64, id []byte, key string, more ...sqldriver.Value) []sqldriver.Value {
		all := []sqldriver.Value{
			kind, int64(0), seq, id, key, "", int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0),
			"", "", "", nil, nil, int64(0), int64(0), "",
		}
		copy(all[6:], more)
		return all
	}
	page := [][][]sqldriver.Value{{{int64(0), int64(9_000_000)}}, nil, {
		row(4, 21, none, "a", int64(22), int64(0), int64(0), int64(23), int64(24)),
		row(3, 12, id[:], "b"), row(3, 11, id[:], "a"),
		row(1, 5, none, "ka", int64(77)), row(2, 6, id[:], "a", int64(0), int64(0), int64(1)),
		row(0, 0, none, ""),
	}}
	f.answer = func(name string) ([][][]sqldriver.Value, error) {
		if name == "page" {
			return page, nil
		}
		return nil, nil
	}
	ask := driver.Ask{Line: line, Limit: 10, Keys: true, Lock: true, Due: 3}
	read := func() (p driver.Page) {
		require.NoError(t, d.Update(t.Context(), driver.Begin{}, func(tx driver.Tx) (err error) {
			p, err = tx.Page(t.Context(), ask)
			require.GreaterOrEqual(t, tx.State().Now, p.Now)
			return err
		}))
		return p
	}
	p := read()
	require.Equal(t, driver.Time(9_000_000), p.Now)
	require.False(t, p.Busy)
	require.Equal(t, []int64{11, 12}, []int64{p.Ready[0].Seq, p.Ready[1].Seq}, "by place")
	require.Equal(t, line, p.Ready[0].Line)
	require.Equal(t, id, p.Held[0].ID)
	require.Equal(t, "ka", p.Notes[0].Name)
	require.Equal(t, map[string]driver.KeyState{"a": {Waiting: 21, Held: 22, Parked: 23, Due: 24}}, p.Keys)

	page = [][][]sqldriver.Value{{{int64(-1), int64(9_000_000)}}}
	ask.Pass = true
	require.Equal(t, driver.Page{Now: 9_000_000, Busy: true}, read())
}

// Apply reports the rows that the statements have not written, and sends each kind of change by itself.
func TestApply(t *testing.T) {
	t.Parallel()
	f := &fake{}
	f.answer = func(name string) ([][][]sqldriver.Value, error) {
		if name == "lease" {
			return [][][]sqldriver.Value{{{int64(1)}}}, nil
		}
		return nil, nil
	}
	d, _ := f.on(t)
	row := func(seq int64) driver.Row {
		return driver.Row{Seq: seq, ID: outmill.NewWorkItemID(), Stage: driver.Ready}
	}
	leased := func(was driver.Row) driver.Change {
		now := was
		now.Stage, now.Owner, now.Wake, now.Claims = driver.Leased, "owner", 5, was.Claims+1
		return driver.Change{Was: was, Now: now}
	}
	first, second, third, moved := row(1), row(2), row(3), row(4)
	moved.Group = "g"
	gone := moved
	gone.Group = ""
	require.NoError(t, d.Update(t.Context(), driver.Begin{}, func(tx driver.Tx) error {
		done, err := tx.Apply(t.Context(), driver.Changes{
			Rows: []driver.Change{leased(first), leased(second), {Was: moved, Now: gone}}, Delete: []driver.Row{third},
			Open: []driver.Note{{Name: "ka"}},
		})
		require.Equal(t, map[outmill.WorkItemID]bool{second.ID: true, third.ID: true, moved.ID: true}, done.Lost)
		require.True(t, tx.State().Unrouted)
		return err
	}))
	require.Equal(t, []string{"begin", "state", "lease", "change", "delete", "open_notes", "commit"}, f.names)
}
