package worker

import (
	"time"

	"github.com/outmill/outmill"
)

const (
	// crowdPatience is how long a feed may be full of records that all wait
	// behind others of their keys.
	crowdPatience = time.Second
	// crowdShare is how many records of such a key it keeps.
	crowdShare = 8
)

// relieve makes room for other keys where a feed is full of the records of few,
// which are handled one by one while there are hands free. It gives back most of
// those that wait, and goes on as another owner, because a store hands nothing of
// the keys to that one while the first still holds records of them.
func (w *Worker) relieve(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Order != outmill.OrderKey || w.cfg.Pipelined {
		return
	}
	crowded := map[*Feed]bool{}
	for _, f := range w.feeds {
		if !f.fullSince.IsZero() && now.Sub(f.fullSince) >= crowdPatience && f.solo == nil && !f.anyReady() {
			crowded[f] = true
		}
	}
	if len(crowded) == 0 {
		return
	}
	relieved := false
	for _, sequence := range w.keys {
		if len(sequence) > crowdShare && sequence[crowdShare].state == queued && crowded[sequence[crowdShare].feed] {
			relieved = true
			w.settleLocked(sequence[crowdShare], outcome{kind: released})
		}
	}
	if relieved {
		w.owner = outmill.NewOwnerToken()
	}
}
