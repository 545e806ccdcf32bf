package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

func TestInOrder(t *testing.T) {
	t.Parallel()
	id := func(n byte) (id outmill.WorkItemID) {
		id[0] = n
		return id
	}
	a, b := driver.Line{Group: "g", Topic: "a"}, driver.Line{Group: "g", Topic: "b"}
	c := driver.Changes{
		Rows:   []driver.Change{{Was: driver.Row{ID: id(2), Seq: 1}}, {Was: driver.Row{ID: id(1), Seq: 2}}},
		Delete: []driver.Row{{ID: id(4), Seq: 3}, {ID: id(3), Seq: 4}},
		Open:   []driver.Note{{Line: b, Name: "k1"}, {Line: a, Name: "k1"}, {Line: b, Name: "k1"}},
		Notes: []driver.Note{
			{Line: a, Name: "p1", Blocker: "p1", Head: 5}, {Line: a, Name: "p1", Blocker: "p1", Head: 7}, {Line: a, Name: "k", Head: 9},
		},
	}
	inOrder(&c)
	require.Equal(t, []outmill.WorkItemID{id(1), id(2), id(3), id(4)},
		[]outmill.WorkItemID{c.Rows[0].Was.ID, c.Rows[1].Was.ID, c.Delete[0].ID, c.Delete[1].ID})
	require.Equal(t, []driver.Note{{Line: a, Name: "k1"}, {Line: b, Name: "k1"}}, c.Open)
	require.Equal(t, []driver.Note{{Line: a, Name: "k", Head: 9}, {Line: a, Name: "p1", Blocker: "p1", Head: 5}}, c.Notes)
}
