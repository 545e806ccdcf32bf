package worker

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// heedPauses releases the items that a pause covers and whose handling has not begun, if the
// pauses have changed since the last time. The worker calls it after each call of the store,
// which has read the pauses by the way (roles.Pauses.LastPauses), so this costs no round
// trip. The claim that returned an item may have begun before the pause, so heedPauses cannot
// compare only the items of the last claim.
func (w *Worker) heedPauses() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heedPausesLocked()
}

func (w *Worker) heedPausesLocked() {
	if w.pauses == nil {
		return
	}
	list := w.pauses.LastPauses()
	if list == w.paused {
		return
	}
	w.paused = list
	if list.Empty() {
		return
	}
	w.breakUp()
	for _, it := range w.items {
		if it.waits() && list.Covers(it.Record) {
			w.settleLocked(it, outcome{kind: released})
			it.sayLost()
		}
	}
}

// waits reports whether the item's handling has not begun: nobody has taken the item, or it is
// offered to a reader that has not taken the message.
func (it *Item) waits() bool {
	return it.state == queued || it.state == taken && it.startedAt.IsZero()
}

func pausesOf(queue outmill.Queue) roles.Pauses {
	pauses, _ := outmill.As[roles.Pauses](queue)
	return pauses
}
