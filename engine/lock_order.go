package engine

import (
	"cmp"
	"slices"

	"github.com/outmill/outmill/engine/driver"
)

// inOrder sorts what an Apply writes, and names each note once. Two transactions that write the same rows and
// notes then wait for each other in one order only. It is that of the ids, because an ack knows nothing else of its rows.
func inOrder(c *driver.Changes) {
	slices.SortFunc(c.Rows, func(a, b driver.Change) int { return byWorkItem(a.Was.ID, b.Was.ID) })
	slices.SortFunc(c.Delete, func(a, b driver.Row) int { return byWorkItem(a.ID, b.ID) })
	for _, list := range []*[]driver.Note{&c.Open, &c.Drop, &c.Notes} {
		*list = eachNoteOnce(*list)
	}
	// A note that is opened has other Looks, and would not be dropped. One that is written need not be opened.
	c.Open = slices.DeleteFunc(c.Open, func(n driver.Note) bool { return hasNote(c.Drop, n) || hasNote(c.Notes, n) })
}

// hasNote reports whether notes that inOrder has sorted have one with the name of n.
func hasNote(notes []driver.Note, n driver.Note) bool {
	_, found := slices.BinarySearchFunc(notes, n, byName)
	return found
}

// eachNoteOnce sorts notes. Of several with one name, the last one stays, with the smallest Head of all.
func eachNoteOnce(notes []driver.Note) []driver.Note {
	slices.SortStableFunc(notes, byName)
	var once []driver.Note
	for _, n := range notes {
		last := len(once) - 1
		if last < 0 || byName(once[last], n) != 0 {
			once = append(once, n)
			continue
		}
		n.Head = min(n.Head, once[last].Head)
		once[last] = n
	}
	return once
}

func byName(a, b driver.Note) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Name, b.Name))
}
