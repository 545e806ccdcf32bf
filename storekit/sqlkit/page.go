package sqlkit

import "github.com/outmill/outmill/engine/driver"

// The kinds of the rows of a page that is one statement.
const (
	// PageHead is what the page says of its line and its moment.
	PageHead = iota
	PageNote
	PageHeld
	PageReady
	PageKey
	// PageMore is the first of those kinds that a driver has besides.
	PageMore
)

// PageRow is a row of a page, in the columns of a record without its line. Of a note they have its name as the key, its blocker as the
// owner, its head as the place, and its looks as the attempts. Of the state of a key they have the other owner as the owner, and as the
// place and the times Created, Wake and Next the rows that wait, are held, are parked, and are due.
type PageRow struct {
	RowInto
	Kind int
}

// PageColumns are the targets of the columns of a row behind its kind. See RowInto.Columns.
func (p *PageRow) PageColumns(id func(into *[16]byte) any, parked any) []any {
	all := p.Columns(id, parked)
	return append(all[:2:2], all[4:]...)
}

// Of returns the row as one of the line.
func (p *PageRow) Of(line driver.Line) driver.Row {
	r := p.Checked()
	r.Line = line
	return r
}

// Note returns the note.
func (p *PageRow) Note(line driver.Line) driver.Note {
	return driver.Note{Line: line, Name: p.Key, Blocker: p.Owner, Head: p.Seq, LookAt: p.Wake, Looks: int(p.attempts)}
}

// AddTo adds to the page of a line what the row has: a note, a held or a ready row, or the state of a key. The driver adds what is of other
// kinds.
func (p *PageRow) AddTo(page *driver.Page, line driver.Line) {
	switch p.Kind {
	case PageNote:
		page.Notes = append(page.Notes, p.Note(line))
	case PageHeld:
		page.Held = append(page.Held, p.Of(line))
	case PageReady:
		page.Ready = append(page.Ready, p.Of(line))
	case PageKey:
		if page.Keys == nil {
			page.Keys = map[string]driver.KeyState{}
		}
		page.Keys[p.Key] = driver.KeyState{
			Other: p.Owner, Waiting: p.Seq, Held: int64(p.Created), Parked: int64(p.Wake), Due: int64(p.Next),
		}
	}
}
