package driver

import (
	"cmp"
	"slices"
)

func bySeq(a, b Row) int  { return cmp.Compare(a.Seq, b.Seq) }
func byWake(a, b Row) int { return cmp.Or(cmp.Compare(a.Wake, b.Wake), bySeq(a, b)) }
func byComing(a, b Row) int {
	return cmp.Or(cmp.Compare(a.Stage, b.Stage), byWake(a, b))
}

// Sort puts the rows that a search has found into its order. A driver needs it where one search is several statements or the parts of a
// UNION, of which no rule of SQL keeps the order.
func (i Index) Sort(rows []Row) {
	order := bySeq
	switch i {
	case ByStage, ByLater, ByEnded:
		order = byWake
	case ByComing, ByDue:
		order = byComing
	case ByExpiry:
		order = func(a, b Row) int { return cmp.Or(cmp.Compare(a.Expires, b.Expires), bySeq(a, b)) }
	case ByDone:
		order = func(a, b Row) int { return cmp.Or(cmp.Compare(a.Processed, b.Processed), bySeq(a, b)) }
	default:
	}
	slices.SortFunc(rows, order)
}

// ForEach reports whether a search has its Limit for each stage that it looks at, and not for all rows together.
func (i Index) ForEach() bool { return i == ByComing || i == ByDue }

// SortNotes puts notes into the order of Page.Notes.
func SortNotes(notes []Note) {
	slices.SortFunc(notes, func(a, b Note) int { return cmp.Or(cmp.Compare(a.Head, b.Head), cmp.Compare(a.Name, b.Name)) })
}

// Sort puts what a page has into its order.
func (p *Page) Sort() {
	ByComing.Sort(p.Due)
	SortNotes(p.Notes)
	ByKeyed.Sort(p.Held)
	ByPlace.Sort(p.Ready)
}
