package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

func TestStillHeld(t *testing.T) {
	t.Parallel()
	line := driver.Line{Group: "g", Topic: "t"}
	id, other := outmill.NewWorkItemID(), outmill.NewWorkItemID()
	key, pause := driver.KeyNote("k"), driver.PauseNote(1)
	note := func(name, blocker string, head int64) driver.Note {
		return driver.Note{Line: line, Name: name, Blocker: blocker, Head: head}
	}
	rows := func(under string) []driver.Change {
		return []driver.Change{
			{Was: driver.Row{ID: id, Line: line, Seq: 5, Stage: driver.Held, Under: under}},
			{Was: driver.Row{ID: other, Line: line, Seq: 3, Stage: driver.Held, Under: under}},
		}
	}
	for sentence, test := range map[string]struct {
		changes driver.Changes
		want    []driver.Note
	}{
		"a note that was closed for later rows is open, and begins with the row": {
			driver.Changes{Rows: rows(key), Notes: []driver.Note{note(key, pause, 8)}}, []driver.Note{note(key, "", 5)},
		},
		"a note that was closed for earlier rows is open, and begins with them": {
			driver.Changes{Rows: rows(key), Notes: []driver.Note{note(key, pause, 4)}}, []driver.Note{note(key, "", 4)},
		},
		"a note that was dropped is open again": {
			driver.Changes{Rows: rows(key), Drop: []driver.Note{note(key, "", 3)}}, []driver.Note{note(key, "", 5)},
		},
		"a note of a pause that was dropped is there again": {
			driver.Changes{Rows: rows(pause), Drop: []driver.Note{note(pause, pause, 3)}}, []driver.Note{note(pause, pause, 5)},
		},
		"a note of a pause whose Head was raised stays": {
			driver.Changes{Rows: rows(pause), Drop: []driver.Note{note(pause, pause, 1)}, Notes: []driver.Note{note(pause, pause, 3)}}, nil,
		},
		"a note that was left alone stays": {driver.Changes{Rows: rows(key)}, nil},
		"a row that was held by nothing has no note": {
			driver.Changes{Rows: rows(""), Notes: []driver.Note{note(key, pause, 8)}}, nil,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, stillHeld(&test.changes, map[outmill.WorkItemID]bool{id: true}).Notes)
		})
	}
}
