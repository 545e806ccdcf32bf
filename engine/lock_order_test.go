package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
)

func TestInOrder(t *testing.T) {
	t.Parallel()
	a, b := driver.Line{Group: "g", Topic: "a"}, driver.Line{Group: "g", Topic: "b"}
	c := driver.Changes{
		Rows:   []driver.Change{{Was: driver.Row{Seq: 2}}, {Was: driver.Row{Seq: 1}}},
		Delete: []driver.Row{{Seq: 4}, {Seq: 3}},
		Open:   []driver.Note{{Line: b, Name: "k1"}, {Line: a, Name: "k1"}, {Line: b, Name: "k1"}},
		Notes: []driver.Note{
			{Line: a, Name: "p1", Blocker: "p1", Head: 5}, {Line: a, Name: "p1", Blocker: "p1", Head: 7}, {Line: a, Name: "k", Head: 9},
		},
	}
	inOrder(&c)
	require.Equal(t, []int64{1, 2, 3, 4}, []int64{c.Rows[0].Was.Seq, c.Rows[1].Was.Seq, c.Delete[0].Seq, c.Delete[1].Seq})
	require.Equal(t, []driver.Note{{Line: a, Name: "k1"}, {Line: b, Name: "k1"}}, c.Open)
	require.Equal(t, []driver.Note{{Line: a, Name: "k", Head: 9}, {Line: a, Name: "p1", Blocker: "p1", Head: 5}}, c.Notes)
}
