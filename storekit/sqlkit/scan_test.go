package sqlkit_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// row returns a Scan of these values, as database/sql has them.
func row(values ...any) sqlkit.Scan {
	return func(into ...any) error {
		if len(into) != len(values) {
			return errors.New("the number of columns is wrong")
		}
		for i := range into {
			if scanner, is := into[i].(interface{ Scan(any) error }); is {
				if err := scanner.Scan(values[i]); err != nil {
					return err
				}
				continue
			}
			to := reflect.ValueOf(into[i]).Elem()
			to.Set(reflect.ValueOf(values[i]).Convert(to.Type()))
		}
		return nil
	}
}

func columnsOf(id outmill.WorkItemID, parked any, more ...any) []any {
	return append([]any{
		7, id[:], "readers", "orders", "a key", "a tenant", 11, 12, 4, 13, 14, 15, 1, 2, 3, "an owner", "a worker", "", nil, nil, parked, 0, "",
	}, more...)
}

func TestReadRow(t *testing.T) {
	t.Parallel()
	id := outmill.NewWorkItemID()
	want := driver.Row{
		Seq: 7, ID: id, Line: driver.LineOf("readers", "orders"), Key: "a key", Tenant: "a tenant", Created: 11, Size: 12, Stage: driver.Leased,
		Wake: 13, Next: 14, Expires: 15, Attempts: 1, Claims: 2, Expiries: 3, Owner: "an owner", Worker: "a worker",
	}
	var r driver.Row
	require.NoError(t, sqlkit.ReadRow(row(columnsOf(id, int64(0))...), &r))
	assert.Equal(t, want, r)
	want.Parked, want.Blocked = true, true
	for _, parked := range []any{true, int64(1), int64(-3), []byte("2")} {
		require.NoError(t, sqlkit.ReadBlocked(row(columnsOf(id, parked, true)...), &r))
		assert.Equal(t, want, r, "parked is %v", parked)
	}
	require.Error(t, sqlkit.ReadRow(row(columnsOf(id, "yes")...), &r))
	require.Error(t, sqlkit.ReadRow(row(columnsOf(id, []byte("yes"))...), &r))
}

// Each kind of row goes to its part of a page, and has the line that the page is of.
func TestPageRow(t *testing.T) {
	t.Parallel()
	id, line, page := outmill.NewWorkItemID(), driver.LineOf("readers", "orders"), driver.Page{}
	for _, kind := range []int{sqlkit.PageHead, sqlkit.PageNote, sqlkit.PageHeld, sqlkit.PageReady, sqlkit.PageKey, sqlkit.PageMore} {
		var r sqlkit.PageRow
		all := columnsOf(id, false)
		read := row(append([]any{kind, all[0], all[1]}, all[4:]...)...)
		require.NoError(t, read(append([]any{&r.Kind}, r.PageColumns(sqlkit.ScanID, &r.Parked)...)...))
		r.AddTo(&page, line)
	}
	assert.Equal(t, []driver.Note{{Line: line, Name: "a key", Blocker: "an owner", Head: 7, LookAt: 13, Looks: 1}}, page.Notes)
	require.Len(t, page.Held, 1)
	assert.Equal(t, page.Held, page.Ready)
	assert.Equal(t, line, page.Held[0].Line)
	assert.Equal(t, map[string]driver.KeyState{"a key": {Other: "an owner", Waiting: 7, Held: 11, Parked: 13, Due: 14}}, page.Keys)
	assert.Empty(t, page.Due)
}

// Contents are in the order of the rows, and a row that is gone has none.
func TestContents(t *testing.T) {
	t.Parallel()
	first, gone := outmill.NewWorkItemID(), outmill.NewWorkItemID()
	var c sqlkit.Content
	require.NoError(t, sqlkit.ReadContent(row(
		first[:], 21, "m1", nil, "a cause", nil, nil, nil, nil, "an error", `{"a":"b"}`, []byte{}, []byte("tried"),
	), &c))
	found := sqlkit.Contents([]driver.Row{{ID: gone}, {ID: first}}, []sqlkit.Content{c})
	require.Len(t, found, 2)
	assert.Nil(t, found[0].Record)
	r := found[1].Record
	assert.Equal(t, "tried", found[1].History)
	assert.Empty(t, found[1].Broken)
	assert.Equal(t, []string{"m1", "", "a cause", "an error"}, []string{r.MessageID, r.CorrelationID, r.CausationID, r.LastError})
	assert.Equal(t, []byte{}, r.Payload)
	assert.Equal(t, map[string]string{"a": "b"}, r.Metadata)

	require.NoError(t, sqlkit.ReadContent(row(first[:], 21, "m1", nil, nil, nil, nil, nil, "no ids", nil, "{", nil, nil), &c))
	assert.Contains(t, c.Broken, "joins")
	assert.Contains(t, c.Broken, "metadata")
}

func TestLineIn(t *testing.T) {
	t.Parallel()
	var found []driver.Line
	read := sqlkit.Into(&found, sqlkit.LineIn("readers"))
	require.NoError(t, read(row("orders")))
	require.NoError(t, read(row(" 07 orders")))
	assert.Equal(t, []driver.Line{driver.LineOf("readers", "orders"), driver.LineOf("readers", " 07 orders")}, found)
}
