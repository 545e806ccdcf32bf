package drivertest

import (
	"cmp"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// anything is like every row.
var anything = driver.Like{Last: driver.Dead}

func byID(a, b driver.Row) int { return slices.Compare(a.ID[:], b.ID[:]) }

// after compares the ids, and of the rows those that are like the given one: a driver may return more. It compares no ids where a driver
// may pass by some of them.
func (w *walk) after() operation {
	limit, like := w.limit(), w.like()
	passes := like.First > driver.Leased
	if passes {
		limit = all
	}
	ids := append(w.someIDs(), steps[0])
	return operation{name: fmt.Sprintf("After, like %+v", like), run: func(_ *side, t driver.Tx) (any, error) {
		ids, rows, err := t.After(w.ctx, ids[0], limit, like)
		if err != nil {
			return nil, err
		}
		contents, err := t.Load(w.ctx, rows, 0)
		if err != nil {
			return nil, err
		}
		var alike []driver.Row
		for i, r := range rows {
			if isLike(r, contents[i].Record, like) {
				alike = append(alike, r)
			}
		}
		slices.SortFunc(alike, byID)
		if passes {
			for _, r := range alike {
				if !slices.Contains(ids, r.ID) {
					return nil, fmt.Errorf("After returns a row without its id: %s", r.ID)
				}
			}
			ids = nil
		}
		return []any{orEmpty(ids), w.placed(alike)}, nil
	}}
}

// like is what a row and perhaps some others have in common, or no row.
func (w *walk) like() driver.Like {
	like := anything
	if len(w.rows) == 0 || w.chance(4) {
		return like
	}
	r := w.row()
	message := "message " + fmt.Sprint(w.nth[r.ID]-1)
	like = driver.Like{
		Group: r.Group, Topic: r.Topic, Key: r.Key, Tenant: r.Tenant, MessageID: message, CorrelationID: "correlation", Last: driver.Dead,
	}
	for _, field := range []*string{&like.Group, &like.Topic, &like.Key, &like.Tenant, &like.MessageID, &like.CorrelationID} {
		if w.chance(2) {
			*field = ""
		}
	}
	if w.chance(2) {
		like.First = driver.Stage(rapid.IntRange(0, int(r.Stage)).Draw(w.T, "first stage"))
		like.Last = max(like.First, r.Stage)
	}
	return like
}

func isLike(r driver.Row, record *outmill.Record, like driver.Like) bool {
	for _, pair := range [][2]string{
		{like.Group, r.Group}, {like.Topic, r.Topic}, {like.Key, r.Key}, {like.Tenant, r.Tenant}, {like.MessageID, record.MessageID},
		{like.CorrelationID, record.CorrelationID},
	} {
		if cmp.Or(pair[0], pair[1]) != pair[1] {
			return false
		}
	}
	return like.First <= r.Stage && r.Stage <= like.Last
}
