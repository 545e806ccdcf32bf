package worker

import (
	"slices"
	"time"

	"github.com/outmill/outmill/roles"
)

// growth is the size of the claims while there is a backlog: a claim that is full doubles the next one, from
// BatchSize up to MostBatch. It is BatchSize again after a claim that was not full, unless the bytes have ended it, and while outcomes come
// late.
//
// A record that ends its process takes those with it that the process holds. They come again, and if one of them
// ends the next process too, all are suspects, which are handled one by one. So records whose lease has ended are
// claimed in batches of BatchSize: a larger claim that returns one is given back before anything of it is handled.
// The worker's mutex guards it.
type growth struct {
	// size is 0 for BatchSize.
	size int
	// late says that the last outcomes were stored later than a quarter of the lease after the claim; settled, that
	// any were stored.
	late, settled bool
}

// batch is the size of the next claims.
func (w *Worker) batch() int {
	if w.limit != w.cfg.BatchSize {
		return w.limit
	}
	return w.usual()
}

// usual is batch without a limit below BatchSize.
func (w *Worker) usual() int { return max(w.growth.size, w.cfg.BatchSize) }

// maxItems is MaxItems, as many times larger as the claims are.
func (w *Worker) maxItems() int {
	if w.growth.size <= w.cfg.BatchSize {
		return w.cfg.MaxItems
	}
	return w.cfg.MaxItems * w.growth.size / w.cfg.BatchSize
}

// grow sets the size of the claims after one.
func (w *Worker) grow(o order, got catch, err error) {
	g := &w.growth
	full := err == nil && got.items == o.request.Limit && !got.tried
	cut := err == nil && o.cutByBytes(got) && !got.tried
	switch {
	case g.late || !full && !cut:
		g.size = 0
	case full && g.settled && o.request.Limit >= w.batch():
		g.size = min(2*o.request.Limit, w.cfg.MostBatch)
	}
}

// noteAge notes how long the worker held what has been stored now.
func (w *Worker) noteAge(batch []outcome, now time.Time) {
	oldest := now
	for _, o := range batch {
		if o.kind != released && o.item.claimedAt.Before(oldest) {
			oldest = o.item.claimedAt
		}
	}
	w.noteOldest(oldest, now)
}

// noteOldest is noteAge, for what was claimed at that time; now is nothing.
func (w *Worker) noteOldest(oldest, now time.Time) {
	w.growth.settled = w.growth.settled || oldest.Before(now)
	w.growth.late = now.Sub(oldest) > w.cfg.Lease/4
	if w.growth.late {
		w.growth.size = 0
	}
}

// tried reports whether the lease of one of the records has ended before.
func tried(records []roles.RawRecord) bool {
	return slices.ContainsFunc(records, func(rec roles.RawRecord) bool { return rec.Expiries > 0 })
}
