package driver

import (
	"context"
	"encoding/hex"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// wasItem is what a statement compares of a row.
type wasItem struct {
	Seq    int64  `json:"seq"`
	ID     string `json:"id"`
	Stage  int    `json:"stage"`
	Wake   int64  `json:"wake"`
	Claims int    `json:"claims"`
	Owner  string `json:"owner"`
	Group  string `json:"grp"`
	Step   string `json:"step"`
	// Broken is a row that could not be decoded: nothing is compared.
	Broken bool `json:"broken"`
}

func wasOf(r *driver.Row) wasItem {
	return wasItem{r.Seq, idText(r.ID), int(r.Stage), int64(r.Wake), r.Claims, r.Owner, r.Group, idText(r.Step), r.Broken != ""}
}

// The items of the statements lease, extend and change.
type (
	leaseItem struct {
		wasItem
		Attempts int `json:"more_attempts"`
		Expiries int `json:"more_expiries"`
	}
	extendItem struct {
		wasItem
		Until int64 `json:"until"`
	}
	changeItem struct {
		wasItem
		ToStage   int     `json:"to_stage"`
		ToWake    int64   `json:"to_wake"`
		Next      int64   `json:"next_at"`
		Expires   int64   `json:"expires_at"`
		Attempts  int     `json:"attempts"`
		ToClaims  int     `json:"to_claims"`
		Expiries  int     `json:"expiries"`
		ToOwner   string  `json:"to_owner"`
		Worker    string  `json:"worker"`
		Under     string  `json:"under"`
		Hold      int     `json:"hold"`
		Parked    bool    `json:"parked"`
		Processed int64   `json:"processed_at"`
		By        string  `json:"processed_by"`
		ToGroup   string  `json:"to_grp"`
		Error     *string `json:"error"`
		Tried     string  `json:"tried"`
	}
)

// holdOf is the column hold of a row.
func holdOf(r *driver.Row) int {
	if r.Stage != driver.Held {
		return 0
	}
	if _, keyed := driver.KeyOf(r.Under); keyed {
		return 1
	}
	return 2
}

func changeOf(c *driver.Change) changeItem {
	n := &c.Now
	return changeItem{
		wasOf(&c.Was), int(n.Stage), int64(n.Wake), int64(n.Next), int64(n.Expires), n.Attempts, n.Claims, n.Expiries, n.Owner, n.Worker, n.Under,
		holdOf(n), n.Parked, int64(n.Processed), n.By, n.Group, n.Error, hex.EncodeToString([]byte(n.Tried)),
	}
}

// how is how a statement writes a row: each is for the rows of one kind.
type how struct {
	statement string
	// Of leases: what all rows of the statement become.
	wake          driver.Time
	owner, worker string
}

func howOf(c *driver.Change) how {
	switch {
	case c.IsLease():
		return how{"lease", c.Now.Wake, c.Now.Owner, c.Now.Worker}
	case c.IsExtension():
		return how{statement: "extend"}
	case c.Was.Group != c.Now.Group:
		return how{statement: moving + "change"}
	}
	return how{statement: "change"}
}

// Apply writes the changes of the rows that still stand as they were read, and then the notes.
func (t *tx) Apply(ctx context.Context, c driver.Changes) (done driver.Applied, err error) {
	written := make(map[int64]bool, len(c.Rows)+len(c.Delete))
	write := func(name, items string, more args) error {
		a := args{"rows": items}
		for key, value := range more {
			a[key] = value
		}
		return t.query(ctx, name, a, func(scan scan) error {
			var seq int64
			err := scan(&seq)
			written[seq] = true
			return err
		})
	}
	if err := writeRows(c.Rows, write); err != nil {
		return done, err
	}
	if len(c.Delete) > 0 {
		if err := write("delete", jsonOf(sqlkit.Mapped(c.Delete, wasOf)), nil); err != nil {
			return done, err
		}
	}
	lose := func(r *driver.Row) {
		if !written[r.Seq] {
			if done.Lost == nil {
				done.Lost = map[outmill.WorkItemID]bool{}
			}
			done.Lost[r.ID] = true
		}
	}
	for i := range c.Rows {
		lose(&c.Rows[i].Was)
		t.state.Unrouted = t.state.Unrouted || c.Rows[i].Now.Group == ""
	}
	for i := range c.Delete {
		lose(&c.Delete[i])
	}
	return done, t.writeNotes(ctx, &c)
}

// writeRows writes leases, extensions and other changes by a statement each.
func writeRows(rows []driver.Change, write func(name, items string, more args) error) error {
	lists := map[how][]driver.Change{}
	var all []how
	for _, c := range rows {
		h := howOf(&c)
		if lists[h] == nil {
			all = append(all, h)
		}
		lists[h] = append(lists[h], c)
	}
	for _, h := range all {
		var err error
		switch h.statement {
		case "lease":
			err = write("lease", jsonOf(sqlkit.Mapped(lists[h], func(c *driver.Change) leaseItem {
				return leaseItem{wasOf(&c.Was), c.Now.Attempts - c.Was.Attempts, c.Now.Expiries - c.Was.Expiries}
			})), args{"until": h.wake, "owner": h.owner, "worker": h.worker})
		case "extend":
			err = write("extend", jsonOf(sqlkit.Mapped(lists[h], func(c *driver.Change) extendItem {
				return extendItem{wasOf(&c.Was), int64(c.Now.Wake)}
			})), nil)
		default:
			err = write(h.statement, jsonOf(sqlkit.Mapped(lists[h], changeOf)), nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noteItem is a note in a list of notes.
type noteItem struct {
	ID      string `json:"id"`
	Group   string `json:"grp"`
	Topic   string `json:"topic"`
	Name    string `json:"name"`
	Blocker string `json:"blocker"`
	Head    int64  `json:"head"`
	LookAt  int64  `json:"look_at"`
	Looks   int    `json:"looks"`
	Paused  bool   `json:"paused"`
	// Same says that the note is that of a pause, and written without a look at it.
	Same bool `json:"same"`
	// Done is false: the statement sets it.
	Done    bool  `json:"done"`
	Version int64 `json:"version"`
}

// notesOf are the items in the order of the notes, which is that of the locks.
func (t *tx) notesOf(notes []driver.Note) string {
	return jsonOf(sqlkit.Mapped(notes, func(n *driver.Note) noteItem {
		_, paused := driver.ByPause(n.Blocker)
		return noteItem{
			idText(hashOf(n.Group, n.Line.Name(), n.Name)), n.Group, n.Line.Name(), n.Name, n.Blocker, n.Head, int64(n.LookAt), n.Looks, paused,
			n.Name == n.Blocker, false, t.versions[noteKey{n.Line, n.Name}],
		}
	}))
}

// writeNotes opens, drops and writes notes.
func (t *tx) writeNotes(ctx context.Context, c *driver.Changes) error {
	for _, w := range []struct {
		statement string
		notes     []driver.Note
	}{{"open_notes", c.Open}, {"drop_notes", c.Drop}, {"put_notes", c.Notes}} {
		if len(w.notes) == 0 {
			continue
		}
		if err := t.query(ctx, w.statement, args{"notes": t.notesOf(w.notes)}); err != nil {
			return err
		}
		// What this transaction has written nobody else changes before it ends.
		for _, n := range w.notes {
			delete(t.versions, noteKey{n.Line, n.Name})
		}
	}
	t.state.Noted(c.Notes)
	return nil
}

// Forget deletes the notes of a group.
func (t *tx) Forget(ctx context.Context, group string) error {
	return t.query(ctx, "forget", args{"group": group})
}
