package worker

import (
	"time"

	"github.com/outmill/outmill"
)

const (
	// crowdPatience is how long a worker may be full of records that all wait
	// behind others of their keys.
	crowdPatience = time.Second
	// crowdShare is how many records of such a key it keeps.
	crowdShare = 8
)

// relieve makes room for other keys where the worker is full of the records of
// few, which are handled one by one while there are hands free. It gives back
// most of those that wait, and goes on as another owner: to that one a store
// hands out nothing of the keys of which the first still holds records.
func (w *Worker) relieve() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Order != outmill.OrderKey || w.cfg.Pipelined || w.solo != nil || w.anyReady() {
		return
	}
	crowded := false
	for _, sequence := range w.keys {
		if len(sequence) > crowdShare && sequence[crowdShare].state == queued {
			crowded = true
			w.settleLocked(sequence[crowdShare], outcome{kind: released})
		}
	}
	if crowded {
		w.owner = outmill.NewOwnerToken()
	}
}

func (w *Worker) anyReady() bool {
	for _, it := range w.ready {
		if it.state == queued {
			return true
		}
	}
	return false
}
