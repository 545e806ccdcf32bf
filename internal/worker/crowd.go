package worker

import (
	"time"

	"github.com/outmill/outmill"
)

const (
	// crowdPatience is how long a feed may be full while all its waiting records are behind
	// others of their keys.
	crowdPatience = time.Second
	// crowdShare is the number of records of such a key that the feed keeps.
	crowdShare = 8
)

// relieve makes room for other keys if a feed is full of the records of few keys: these are
// handled one by one, while handlers are free. It releases most of the waiting records and
// changes the owner. A store returns no records of these keys to the new owner while the
// old owner still has leases on them.
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
