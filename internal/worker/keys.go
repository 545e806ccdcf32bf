package worker

import (
	"slices"

	"github.com/outmill/outmill"
)

func (w *Worker) ordered() bool { return w.cfg.Order != outmill.OrderNone }

// keyOf returns the key of the record's order, which includes the topic, and the store if the
// reader's store is made of several; "" is no order.
func (w *Worker) keyOf(rec *outmill.Record) string {
	key := ""
	switch {
	case w.cfg.Order == outmill.OrderTopic:
		key = rec.Topic
	case w.cfg.Order == outmill.OrderKey && rec.Key != "":
		key = rec.Topic + "\x00" + rec.Key
	}
	if key == "" || rec.Store == "" {
		return key
	}
	return rec.Store + "\x00" + key
}

// enqueueKey appends the item to the sequence of its key, and reports whether it is the
// first there.
func (w *Worker) enqueueKey(it *Item) bool {
	if it.key == "" {
		return true
	}
	sequence, others := w.keys[it.key]
	if !others {
		sequence = it.ownSequence[:0]
	}
	w.keys[it.key] = append(sequence, it)
	return !others
}

// giveBackKey releases the later records of the key that were not taken yet.
func (w *Worker) giveBackKey(it *Item) {
	if it.key == "" {
		return
	}
	w.tainted[it.key] = struct{}{}
	w.breakUp()
	sequence := w.keys[it.key]
	i := slices.Index(sequence, it)
	if i < 0 {
		return
	}
	kept := sequence[:i]
	for _, later := range sequence[i+1:] {
		if later.state == queued {
			w.conclude(later, outcome{kind: released})
			continue
		}
		kept = append(kept, later)
	}
	clear(sequence[len(kept):])
	w.setSequence(it.key, kept)
}

// nextOfKey makes the next record of the key ready.
func (w *Worker) nextOfKey(it *Item) {
	if it.key == "" {
		return
	}
	sequence := w.keys[it.key]
	i := slices.Index(sequence, it)
	if i < 0 {
		return
	}
	if i == 0 {
		// In the usual case the other items need not move.
		sequence[0] = nil
		sequence = sequence[1:]
	} else {
		sequence = slices.Delete(sequence, i, i+1)
	}
	w.setSequence(it.key, sequence)
	if i == 0 && len(sequence) > 0 && sequence[0].state == queued && !w.cfg.Pipelined {
		f := sequence[0].feed
		f.ready = append(f.ready, sequence[0])
		signal(f.readySignal)
	}
}

func (w *Worker) setSequence(key string, sequence []*Item) {
	if len(sequence) == 0 {
		delete(w.keys, key)
		return
	}
	w.keys[key] = sequence
}
