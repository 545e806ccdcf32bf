package driver_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outmill/outmill/engine/driver"
)

func seqs(rows []driver.Row) (all []int64) {
	for _, r := range rows {
		all = append(all, r.Seq)
	}
	return all
}

// The rows of each search have the order that the search promises, whatever the order in which statements have found them.
func TestIndex_Sort(t *testing.T) {
	t.Parallel()
	rows := []driver.Row{
		{Seq: 5, Stage: driver.Leased, Wake: 1, Expires: 9, Processed: 3},
		{Seq: 4, Stage: driver.Waiting, Wake: 8, Expires: 2, Processed: 3},
		{Seq: 3, Stage: driver.Waiting, Wake: 2, Expires: 4, Processed: 9},
		{Seq: 2, Stage: driver.Delayed, Wake: 8, Expires: 4, Processed: 1},
		{Seq: 1, Stage: driver.Ready, Wake: 0, Expires: 9, Processed: 5},
	}
	for by, want := range map[driver.Index][]int64{
		driver.ByStage: {1, 5, 3, 2, 4}, driver.ByLater: {1, 5, 3, 2, 4}, driver.ByEnded: {1, 5, 3, 2, 4},
		driver.ByComing: {1, 3, 4, 2, 5}, driver.ByDue: {1, 3, 4, 2, 5},
		driver.ByExpiry: {4, 2, 3, 1, 5}, driver.ByDone: {2, 4, 5, 1, 3},
		driver.ByPlace: {1, 2, 3, 4, 5}, driver.ByKey: {1, 2, 3, 4, 5}, driver.ByUnrouted: {1, 2, 3, 4, 5},
	} {
		found := append([]driver.Row(nil), rows...)
		by.Sort(found)
		assert.Equal(t, want, seqs(found), "search %d", by)
		assert.Equal(t, by == driver.ByComing || by == driver.ByDue, by.ForEach(), "search %d", by)
	}
}

func TestPage_Sort(t *testing.T) {
	t.Parallel()
	p := driver.Page{
		Due:   []driver.Row{{Seq: 1, Stage: driver.Leased, Wake: 1}, {Seq: 2, Stage: driver.Waiting, Wake: 9}},
		Notes: []driver.Note{{Name: "kb", Head: 2}, {Name: "kc", Head: 1}, {Name: "ka", Head: 2}},
		Held:  []driver.Row{{Seq: 2}, {Seq: 1}},
		Ready: []driver.Row{{Seq: 4}, {Seq: 3}},
	}
	p.Sort()
	assert.Equal(t, []int64{2, 1, 1, 2, 3, 4}, append(append(seqs(p.Due), seqs(p.Held)...), seqs(p.Ready)...))
	assert.Equal(t, []string{"kc", "ka", "kb"}, []string{p.Notes[0].Name, p.Notes[1].Name, p.Notes[2].Name})
}

// A transaction knows of the notes that it has written itself, and whether one of them is that of a pause.
func TestState_Noted(t *testing.T) {
	t.Parallel()
	var s driver.State
	s.Noted(nil)
	assert.Equal(t, driver.State{}, s)
	s.Noted([]driver.Note{{Blocker: driver.RetryBlocks}})
	assert.Equal(t, driver.State{Notes: true}, s)
	s.Noted([]driver.Note{{Blocker: driver.PauseNote(7)}, {Blocker: ""}})
	assert.Equal(t, driver.State{Notes: true, Paused: true}, s)
}
