package driver

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// querier is a transaction, or the pool.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// tx is a transaction: the driver's own, or the caller's.
type tx struct {
	d  *Driver
	on querier
	// callers says that each statement must prove that there is a transaction, and leave the session as it was.
	callers bool
	// locks says that searches may lock rows.
	locks bool
	state driver.State
	// versions are those of the notes that this one has read, and has not written since.
	versions map[noteKey]int64
	storekit.AfterCommit
}

var _ driver.Tx = (*tx)(nil)

// State returns what the transaction knows about the database.
func (t *tx) State() driver.State { return t.state }

// args are the parameters of a statement, by name.
type args map[string]any

// list converts them for go-mssqldb. It declares a text by its length, and the server keeps a plan for each declaration; so the texts
// are declared without a length, and always in one order. There is always a parameter: without one the server would not run the text
// as a procedure, and settings would stay.
func (a args) list() []any {
	list := make([]any, 0, len(a)+1)
	for _, name := range slices.Sorted(maps.Keys(a)) {
		value := a[name]
		switch v := value.(type) {
		case string:
			value = mssql.NVarCharMax(v)
		case int:
			value = int64(v)
		case driver.Time:
			value = int64(v)
		case driver.Stage:
			value = int64(v)
		}
		list = append(list, sql.Named(name, value))
	}
	if len(list) == 0 {
		list = append(list, sql.Named("outmill", int64(0)))
	}
	return list
}

type scan = sqlkit.Scan

// query runs a statement, and has each reader read one of its results, row by row.
func (t *tx) query(ctx context.Context, name string, a args, readers ...func(scan scan) error) error {
	return t.queryAs(ctx, name, t.locks, a, readers...)
}

// queryAs is query for a search that locks, or does not.
func (t *tx) queryAs(ctx context.Context, name string, locks bool, a args, readers ...func(scan scan) error) (err error) {
	begin := alone
	if t.callers {
		begin = within
	}
	rows, err := t.on.QueryContext(ctx, begin+t.d.names.text(name, locks), a.list()...)
	if err != nil {
		return ended(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for i := 0; ; i++ {
		for rows.Next() {
			if i >= len(readers) {
				continue
			}
			if err := readers[i](rows.Scan); err != nil {
				return err
			}
		}
		// An error may follow the last result.
		if err := rows.Err(); err != nil || !rows.NextResultSet() {
			return ended(errors.Join(err, rows.Err()))
		}
	}
}

// list returns the rows of a statement.
func list[T any](ctx context.Context, t *tx, name string, a args, read func(scan scan, item *T) error) (found []T, err error) {
	err = t.query(ctx, name, a, sqlkit.Into(&found, read))
	return found, err
}

func (t *tx) readState(ctx context.Context) error {
	s, version := &t.state, storekit.SchemaVersion{}
	err := t.query(ctx, "state", nil, func(scan scan) error {
		return scan(&version.Version, &version.Compatible, &s.Routes, &s.Pauses, (*int64)(&s.Now), &s.Notes, &s.Paused, &s.Unrouted)
	})
	if err != nil {
		return err
	}
	return cmp.Or(version.Check(schemaVersion), t.checkDatabase(ctx))
}

// Bump raises generations, and locks them.
func (t *tx) Bump(ctx context.Context, routes, pauses bool) (driver.Generations, error) {
	raise := map[bool]int64{true: 1}
	g := &t.state.Generations
	err := t.query(ctx, "bump", args{"routes": raise[routes], "pauses": raise[pauses]},
		func(scan scan) error { return scan(&g.Routes, &g.Pauses) })
	return *g, err
}

// jsonOf is a list as JSON, so that a statement is the same for every length. It never fails: a text or a number becomes JSON.
func jsonOf[T any](list []T) string {
	if list == nil {
		// SQL Server takes no null for a list.
		return "[]"
	}
	text, _ := json.Marshal(list)
	return string(text)
}
