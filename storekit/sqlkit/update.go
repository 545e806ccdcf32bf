package sqlkit

import "github.com/outmill/outmill/engine/driver"

// UpdateKind says what a statement writes of rows.
type UpdateKind int

const (
	// Lease is a claim. Its values are the wake, the owner, the worker, and how many attempts and expiries are added. It adds a claim, and
	// clears the note.
	Lease UpdateKind = iota
	// Extend has the wake.
	Extend
	// Change is every other change. Its values are the stage, the wake, the next, the expires, the attempts, the claims, the expiries, the
	// owner, the worker, the note, whether it is parked, the processed time, by whom, the error, and what is put in front of the history. A
	// nil leaves the next, the expires or the error as it is.
	Change
)

// update is what one statement writes. The rows for which that is the same are written together.
type update struct {
	kind   UpdateKind
	values [15]any
}

var widths = map[UpdateKind]int{Lease: 5, Extend: 1, Change: 15}

func updateOf(c *driver.Change) update {
	was, now := &c.Was, &c.Now
	switch {
	case c.IsLease():
		return update{Lease, [15]any{int64(now.Wake), now.Owner, now.Worker, now.Attempts - was.Attempts, now.Expiries - was.Expiries}}
	case c.IsExtension():
		return update{Extend, [15]any{int64(now.Wake)}}
	}
	var failed any
	if now.Error != nil {
		failed = *now.Error
	}
	changed := func(was, now driver.Time) any {
		// A row that could not be read gets its whole state. In others these times differ from row to row.
		if c.Was.Broken == "" && was == now {
			return nil
		}
		return int64(now)
	}
	return update{Change, [15]any{
		int64(now.Stage), int64(now.Wake), changed(was.Next, now.Next), changed(was.Expires, now.Expires), now.Attempts, now.Claims,
		now.Expiries, now.Owner, now.Worker, now.Under, now.Parked, int64(now.Processed), now.By, failed, now.Tried,
	}}
}

// Updates are changes of rows by what one statement writes of them. The zero value has none.
type Updates struct {
	// Unrouted are the places of the rows that their group loses.
	Unrouted []int64
	order    []update
	seqs     map[update][]int64
}

// Add adds a change.
func (u *Updates) Add(c *driver.Change) {
	if u.seqs == nil {
		u.seqs = map[update][]int64{}
	}
	how := updateOf(c)
	if u.seqs[how] == nil {
		u.order = append(u.order, how)
	}
	u.seqs[how] = append(u.seqs[how], c.Was.Seq)
	if c.Was.Group != c.Now.Group {
		u.Unrouted = append(u.Unrouted, c.Was.Seq)
	}
}

// Each calls write for each statement, with its values and the places of its rows.
func (u *Updates) Each(write func(kind UpdateKind, values []any, seqs []int64) error) error {
	for _, how := range u.order {
		n := widths[how.kind]
		if err := write(how.kind, how.values[:n:n], u.seqs[how]); err != nil {
			return err
		}
	}
	return nil
}
