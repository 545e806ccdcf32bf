package driver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"regexp"
	"sync"
	"testing"

	sqlserver "github.com/outmill/outmill/sqlserver/internal/driver"
)

// fake is a database that answers statements by their names: it shows what the driver makes of results and errors, and nothing about SQL.
type fake struct {
	mu sync.Mutex
	// answer returns the results of a statement. Without one, or where it returns none, only the state has one.
	answer func(name string) ([][][]driver.Value, error)
	// unversioned has answer be asked for the settings of the database. Otherwise they suit.
	unversioned bool
	// commit is the error of the next commit.
	commit error
	// names are those of the statements, with begin, commit and rollback. texts are those of the statements.
	names, texts []string
}

// on returns a driver on the fake.
func (f *fake) on(t *testing.T) (*sqlserver.Driver, *sql.DB) {
	t.Helper()
	db := sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	return sqlserver.New(db, sqlserver.Config{Name: "fake", Schema: "dbo", Table: "Outbox"}), db
}

func (f *fake) note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = append(f.names, name)
}

// Connect and the methods below are those of a driver.Connector, its driver and its connections.
func (f *fake) Connect(context.Context) (driver.Conn, error) { return fakeConn{f}, nil }
func (f *fake) Driver() driver.Driver                        { return nil }

type fakeConn struct{ *fake }

func (fakeConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (fakeConn) Close() error                        { return nil }
func (c fakeConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}
func (fakeConn) CheckNamedValue(*driver.NamedValue) error { return nil }
func (c fakeConn) Rollback() error                        { c.note("rollback"); return nil }

func (c fakeConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	c.note("begin")
	return c, nil
}

func (c fakeConn) Commit() error {
	c.note("commit")
	err := c.commit
	c.commit = nil
	return err
}

func (c fakeConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.note("abort")
	return driver.RowsAffected(0), nil
}

var nameOf = regexp.MustCompile(`/\* outmill ([a-z_ ]+) \*/`)

// state is the row of the statement state.
func state() [][][]driver.Value {
	return [][][]driver.Value{{{int64(1), int64(1), int64(5), int64(6), int64(7_000_000), false, false, false}}}
}

func (c fakeConn) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	name := nameOf.FindStringSubmatch(text)[1]
	if name == "database" && !c.unversioned {
		return &fakeRows{results: [][][]driver.Value{{{int64(150), true, false}}, nil}}, nil
	}
	c.note(name)
	c.mu.Lock()
	c.texts = append(c.texts, text)
	c.mu.Unlock()
	var results [][][]driver.Value
	var err error
	if c.answer != nil {
		results, err = c.answer(name)
	}
	if err == nil && results == nil && name == "state" {
		results = state()
	}
	return &fakeRows{results: append(results, nil)}, err
}

// fakeRows are the results of a statement.
type fakeRows struct{ results [][][]driver.Value }

func (r *fakeRows) Columns() []string {
	if len(r.results[0]) == 0 {
		return nil
	}
	return make([]string, len(r.results[0][0]))
}

func (r *fakeRows) Close() error           { return nil }
func (r *fakeRows) HasNextResultSet() bool { return len(r.results) > 1 }
func (r *fakeRows) NextResultSet() error   { r.results = r.results[1:]; return nil }
func (r *fakeRows) Next(into []driver.Value) error {
	if len(r.results[0]) == 0 {
		return io.EOF
	}
	copy(into, r.results[0][0])
	r.results[0] = r.results[0][1:]
	return nil
}
