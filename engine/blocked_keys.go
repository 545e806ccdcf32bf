package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// The life of a note.
//
// A claim by key that must not take a row holds it, and the later ones of its key, under the key's note. The
// note says what blocks the key (Blocker) and which row is the first (Head).
//
//	none   --a claim holds a row of the key-->          closed, with a Blocker; open, if it does not know it
//	closed --a row of the key changes (tx.change)-->    open
//	closed --LookAt comes-->                            a claim looks at it as if it were open
//	closed --the claim's owner, policy or pauses make
//	         the Blocker one that does not block it-->  the same
//	looked at --rows are left behind-->                 closed, Looks + 1 if the Blocker is the same
//	looked at --no row is left-->                       none
//	looked at --rows are taken, others stay-->          closed, with the claim's owner as Blocker
//	looked at --rows are parked, others stay-->         open: the next page has the others
//	closed or dropped, but a row under it is lost-->    open: the row may still be held (stillHeld)
//
// A claim by key locks the line, so that two of them never look at a note at the same time. But a settlement does
// not: it may open a note while a claim closes it, and whichever is written last stays. If the claim was last, the
// key is closed although nothing blocks it. So where transactions run at the same time, a closed note has a
// LookAt: soon, and later each time that a claim finds the same Blocker. A note is dropped only if its Looks are
// still those that the claim has read, because another claim may have held a row under it. A crash leaves at
// worst a note that a claim looks at for nothing.

// soon is when a claim looks again at a note that it has closed, and mostDoublings limits how often it doubles: a key that is closed
// although nothing blocks it is free after 6.4 s.
const (
	soon          = 50 * time.Millisecond
	mostDoublings = 7
)

// keys has what a claim knows of the keys that it has met.
type keys map[string]*key

type key struct {
	driver.KeyState
	// blocked says that no further row of the key may be taken, and by what for.
	blocked bool
	by      string
	// taken says that the claim has taken a row: its lease blocks the key for other owners.
	taken bool
	// stays says that a row behind a parked one is not parked, because of a pause.
	stays bool
	// until is when a paused row expires that blocks the key.
	until driver.Time
	// note is the key's note, if the claim looks at it. head is the first row that it leaves held.
	note *driver.Note
	head int64
}

func (k *key) block(by string) {
	if !k.blocked {
		k.blocked, k.by = true, by
	}
}

// of returns the key. Rows without one have no order.
func (ks keys) of(name string) *key {
	if k := ks[name]; k != nil && name != "" {
		return k
	}
	return &key{KeyState: driver.KeyState{Due: driver.None, Waiting: driver.None, Held: driver.None, Parked: driver.None}, head: driver.None}
}

// leave leaves the rows as they are: the claim needs no more of the topic.
func (ks keys) leave(rows []driver.Row) {
	for _, r := range rows {
		if k := ks[r.Key]; k != nil && r.Stage == driver.Held {
			k.head = min(k.head, r.Seq)
		}
	}
}

// learn returns the states of the keys of a page, and which notes the claim looks at. end is the Seq behind which the page may
// leave out rows that a pause has held: those of a note with more rows than the limit, or of one behind the last note. cut says that there
// may be more rows under the note of a key.
func (c *topicClaim) learn(page driver.Page, ask driver.Ask) (known keys, end int64, cut bool) {
	known, end = keys{}, driver.None
	limit, share := ask.Limit, ask.Share(page.Notes)
	for name, state := range page.Keys {
		known[name] = &key{KeyState: state, head: driver.None}
	}
	more := len(page.Notes) == limit
	if more {
		end = page.Notes[limit-1].Head
	}
	held := byNote(page.Held)
	for i, n := range page.Notes {
		rows := held[n.Name]
		name, ofKey := driver.KeyOf(n.Name)
		if ofKey {
			known[name].note = &page.Notes[i]
		}
		switch {
		case ofKey && len(rows) == share:
			known[name].head, cut = rows[share-1].Seq+1, true
		case !ofKey && len(rows) == limit:
			end = min(end, rows[limit-1].Seq)
		case len(rows) == 0 && !ofKey:
			c.changes.Drop = append(c.changes.Drop, n)
			continue
		}
		if more && !ofKey {
			c.raiseHead(n, rows[0].Seq)
		}
	}
	return known, end, cut
}

// raiseHead raises the Head of a note of a pause, which the rows that left it have not done: it would end a full page before
// its first row, for ever. If another claim has held a row under the note since, the note keeps its Head.
func (c *topicClaim) raiseHead(n driver.Note, head int64) {
	if n.Head == head {
		return
	}
	c.changes.Drop = append(c.changes.Drop, n)
	n.Head, n.Looks = head, n.Looks+1
	c.changes.Notes = append(c.changes.Notes, n)
}

// byNote are the rows by the names of their notes.
func byNote(held []driver.Row) map[string][]driver.Row {
	rows := map[string][]driver.Row{}
	for _, r := range held {
		rows[r.Under] = append(rows[r.Under], r)
	}
	return rows
}

// dropEmpty drops the notes of a page that hold no rows.
func (c *topicClaim) dropEmpty(page driver.Page) {
	held := byNote(page.Held)
	for _, n := range page.Notes {
		if len(held[n.Name]) == 0 {
			c.changes.Drop = append(c.changes.Drop, n)
		}
	}
}

// holdBehind holds the row under the note of its key. If Held is before it, that note exists: only a claim that has locked the
// line drops it, or a drop of the group, which takes that back if it finds rows.
func (c *topicClaim) holdBehind(k *key, r driver.Row) {
	k.head = min(k.head, r.Seq)
	name := driver.KeyNote(r.Key)
	if r.Under == name {
		return
	}
	c.change(r, func(r *driver.Row) { hold(r, name) })
	if k.note == nil && r.Seq <= k.Held {
		k.note = &driver.Note{Line: c.line, Name: name, Blocker: k.by, Head: r.Seq}
	}
}

// noteKeys writes what the claim knows now about the notes that it has looked at or made.
func (c *topicClaim) noteKeys(known keys) {
	for name, k := range known {
		switch {
		case k.note == nil:
		case k.head == driver.None:
			c.changes.Drop = append(c.changes.Drop, *k.note)
			k.Held = driver.None
		default:
			c.changes.Notes = append(c.changes.Notes, c.noteOf(name, k))
			k.Held = k.head
		}
		k.note, k.head = nil, driver.None
	}
}

func (c *topicClaim) noteOf(name string, k *key) driver.Note {
	n := driver.Note{Line: c.line, Name: driver.KeyNote(name), Blocker: k.by, Head: k.head, LookAt: k.until}
	switch {
	case c.parks && k.Parked < k.head && !k.stays:
		// What this page has left goes dead by the next one, whatever blocks the key.
		n.Blocker = ""
	case n.Blocker == "" && k.taken:
		n.Blocker = c.owner
	}
	if n.Blocker == k.note.Blocker {
		n.Looks = k.note.Looks + 1
	}
	if soon := c.after(soon << min(n.Looks, mostDoublings)); !c.State().Serial && n.Blocker != "" && (n.LookAt == 0 || n.LookAt > soon) {
		n.LookAt = soon
	}
	return n
}

// stillHeld has the notes of lost rows that c drops, or writes as if the rows had left them. They are open, and begin with the rows:
// otherwise a row would be held under a note that does not exist, or that only says what blocks later rows, and no claim would meet
// the row again.
func stillHeld(c *driver.Changes, lost map[outmill.WorkItemID]bool) (again driver.Changes) {
	for _, change := range c.Rows {
		r := change.Was
		if !lost[r.ID] || r.Under == "" {
			continue
		}
		n := driver.Note{Line: r.Line, Name: r.Under, Head: r.Seq}
		at, written := slices.BinarySearchFunc(c.Notes, n, byName)
		_, paused := driver.ByPause(n.Name)
		switch {
		case written && !paused:
			n.Head, n.Looks = min(n.Head, c.Notes[at].Head), c.Notes[at].Looks
		case written || !hasNote(c.Drop, n):
			// A note of a pause is written with the Head of its first row, whatever the claim does with that.
			continue
		case paused:
			n.Blocker = n.Name
		}
		again.Notes = append(again.Notes, n)
	}
	return again
}

func byWake(a, b driver.Row) int { return cmp.Or(cmp.Compare(a.Wake, b.Wake), bySeq(a, b)) }
