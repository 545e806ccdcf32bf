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

// relieve makes room for other keys if a feed, or the share of a tenant, is full of the records
// of few keys: these are handled one by one, while handlers are free. It releases most of the
// waiting records and changes the owner. A store returns no records of these keys to the new
// owner while the old owner still has leases on them.
func (w *Worker) relieve(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Order != outmill.OrderKey || w.cfg.Pipelined {
		return
	}
	crowded := map[*Feed]bool{}
	crowdedTenants := map[*Feed]map[tenantOf]bool{}
	for _, f := range w.feeds {
		if of := f.crowdedTenants(now); len(of) > 0 {
			crowdedTenants[f] = of
		}
		if !f.fullSince.IsZero() && now.Sub(f.fullSince) >= crowdPatience && f.solo == nil && !f.anyReady() {
			crowded[f] = true
		}
	}
	if len(crowded)+len(crowdedTenants) == 0 {
		return
	}
	relieved := false
	for _, sequence := range w.keys {
		first := queuedAt(sequence, crowdShare)
		if ofTenant := queuedAt(sequence, w.crowdShareOfTenant()); ofTenant != nil && crowdedTenants[ofTenant.feed][tenantOfItem(ofTenant)] {
			first = ofTenant
		} else if first == nil || !crowded[first.feed] {
			continue
		}
		relieved = true
		w.settleLocked(first, outcome{kind: released})
	}
	if relieved {
		w.owner = outmill.NewOwnerToken()
	}
}

// queuedAt returns the item at the place if it is queued.
func queuedAt(sequence []*Item, place int) *Item {
	if len(sequence) > place && sequence[place].state == queued {
		return sequence[place]
	}
	return nil
}

// crowdShareOfTenant is the number of records of a key that a crowded tenant keeps.
func (w *Worker) crowdShareOfTenant() int { return min(crowdShare, (w.cfg.MaxPerTenant+1)/2) }
