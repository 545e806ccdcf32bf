package worker

import (
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// order describes a claim to make.
type order struct {
	request outmill.ClaimRequest
	// feeds are the feeds that the claim covers. If there are none, there is no claim to make.
	feeds []*Feed
	// changes is the worker's count of changes at the time of the order. It shows later
	// changes of topics or limit.
	changes int
	// whole says that the claim covers all feeds, no item was in flight, and no other claim
	// was in progress.
	whole bool
	// number is the number of the claim.
	number int
}

// room chooses the next claim: the feeds that are due and have room, and the limits. If
// there is no claim to make, it returns the time at which the next feed is due, or zero if
// all feeds are full.
//
// A claim has one limit, and one of its feeds may get all records. So a claim covers feeds
// with similar limits, beginning with the feed that was covered longest ago. Ordered claims
// wait until all releases are stored: otherwise this owner would still have leases on the
// keys, and the store would return their later records. In a set they leave out the members of these.
func (w *Worker) room(now time.Time) (o order, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeFeeds(now)
	if w.source("").waits(w.ordered()) {
		return order{}, time.Time{}
	}
	var first *Feed
	for _, f := range w.feeds {
		if f.want = w.wish(f, now); f.want.items == 0 {
			if f.fullSince.IsZero() {
				f.fullSince = now
			}
			continue
		}
		f.fullSince = time.Time{}
		if at := f.look.next(); next.IsZero() || at.Before(next) {
			next = at
		}
		if f.look.due(now) && (first == nil || f.turn < first.turn) {
			first = f
		}
	}
	if first == nil {
		return order{}, next
	}
	return w.orderFor(first, now), time.Time{}
}

// wakeFeeds makes the feeds due for which the store has signalled new records.
func (w *Worker) wakeFeeds(now time.Time) {
	all := func() {
		for _, f := range w.feeds {
			f.look.soon(now)
		}
	}
	w.woken.take(func(topic string) {
		if f := w.feeds[topic]; f != nil {
			f.look.soon(now)
		} else if !w.cfg.ByTopic {
			all()
		}
	}, all)
}

// wish returns the limits of a claim for the feed, or zero while a claim is not worth its
// cost. A claim must be for at least half a batch, so that claims do not become small when
// handlers finish one by one. While handlers are slow, half of the records claimed ahead is
// enough.
func (w *Worker) wish(f *Feed, now time.Time) load {
	if f.solo != nil {
		return load{}
	}
	most := w.maxItems()
	batch := min(w.batch(), most)
	least := (batch + 1) / 2
	switch {
	case w.cfg.ByTopic:
		prefetch := f.pace.prefetch(now, f.hands, f.running, w.cfg.BatchSize)
		if most = f.hands + prefetch; f.unread {
			most = min(most, f.running+1)
		}
		batch = min(w.limit, most)
		least = min((batch+1)/2, (prefetch+2)/2)
	case w.limit < w.cfg.BatchSize:
		most = w.limit
	}
	free := most - f.held.items - f.asked.items - f.orphans
	bytes := w.cfg.MaxBytes - f.held.bytes - f.asked.bytes
	switch {
	case !w.cfg.ByTopic && batch > w.cfg.BatchSize:
		bytes = min(bytes, (w.cfg.MaxBytes+2)/3)
	case !w.ordered() && w.cfg.MaxPerTenant == 0:
		// A second claim may be in progress, so each gets half.
		bytes = min(bytes, (w.cfg.MaxBytes+1)/2)
	}
	if free < 1 || free < least || bytes <= 0 {
		return load{}
	}
	return load{min(free, batch), bytes}
}

func (w *Worker) orderFor(first *Feed, now time.Time) order {
	fresh := w.held() == 0 && len(w.claiming) == 0
	limit := first.want
	covered := make([]*Feed, 0, len(w.feeds))
	for _, f := range w.feeds {
		if f != first && (f.want.items == 0 || !f.look.nearly(now, &first.look) || !fresh && !f.want.like(first.want)) {
			continue
		}
		covered = append(covered, f)
		limit = load{min(limit.items, f.want.items), min(limit.bytes, f.want.bytes)}
	}
	clear(w.tainted)
	w.claims++
	w.claiming[w.claims] = struct{}{}
	for _, f := range covered {
		f.turn = w.claims
		f.asked.items += limit.items
		f.asked.bytes += limit.bytes
	}
	return order{
		request: outmill.ClaimRequest{
			Owner:     w.owner,
			Worker:    w.cfg.Name,
			Group:     w.cfg.Group,
			Topics:    w.selection(covered),
			Limit:     limit.items,
			MaxBytes:  limit.bytes,
			MaxRecord: w.cfg.maxRecord(), MaxAttempts: w.cfg.maxAttempts(),
			Lease:     w.cfg.Lease,
			Order:     w.cfg.Order,
			KeyPolicy: w.cfg.KeyPolicy,

			Full:      w.fullParts(covered),
			PartLimit: partLimit(w.cfg.MaxPerTenant),
			PassOver:  w.passOver(),
		},
		feeds:   covered,
		changes: w.changes,
		whole:   fresh && len(covered) == len(w.feeds) && !w.anyTenantHeld(),
		number:  w.claims,
	}
}

// like reports whether the wish is as large as the other, but less than twice as large.
func (l load) like(other load) bool {
	return l.items >= other.items && l.items < 2*other.items && l.bytes >= other.bytes/2
}

// selection selects the topics of the covered feeds. If these are more than half of all
// feeds, it excludes the others from the list of all topics, so that the list stays the
// same, because stores serve the topics of one list in turn.
func (w *Worker) selection(covered []*Feed) outmill.Topics {
	if !w.cfg.ByTopic {
		return w.topics
	}
	if 2*len(covered) <= len(w.feeds) {
		return outmill.Topics{Include: namesOf(covered)}
	}
	topics := outmill.Topics{Include: w.include}
	if len(covered) < len(w.feeds) {
		for _, f := range w.feeds {
			if f.turn != w.claims {
				topics.Exclude = append(topics.Exclude, f.name)
			}
		}
		slices.Sort(topics.Exclude)
	}
	return topics
}

func namesOf(feeds []*Feed) []string {
	names := make([]string, len(feeds))
	for i, f := range feeds {
		names[i] = f.name
	}
	slices.Sort(names)
	return names
}

// maxRecord is outmill.ClaimRequest.MaxRecord now.
func (c *Config) maxRecord() int {
	if c.MaxRecord == nil {
		return 0
	}
	return c.MaxRecord()
}

// maxAttempts is outmill.ClaimRequest.MaxAttempts: one more than the record may have, so that a suspect that a claim can
// return goes dead here, with OnDead.
func (c *Config) maxAttempts() int {
	if most := c.Retry.Limit(); most > 0 {
		return most + 1
	}
	return 0
}
