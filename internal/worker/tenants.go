package worker

import (
	"time"

	"github.com/outmill/outmill/storekit"
)

// tenantOf names a tenant of a feed's topic, in one store if the reader's store is made of
// several.
type tenantOf struct{ store, tenant string }

// partOf names a part of a feed's topic: see storekit.PartOf.
type partOf struct {
	store string
	part  int
}

// partLimit is the most records of a part of one claim. A part that holds more than the rest is left out, so that it
// never exceeds most.
func partLimit(most int) int { return (most + 1) / 2 }

// tenantLoad is what the worker holds of one tenant.
type tenantLoad struct {
	// records counts the unsettled items and the orphans.
	records int
	// crowdedSince is the time since which the tenant has been at its limit, while all its
	// waiting records are behind others of their keys.
	crowdedSince time.Time
}

// tenants counts the records of each tenant of a topic; nil if the worker has no limit of them.
// It outlives the feed of the topic while handlers still have records, because another feed of
// the topic may be opened.
type tenants struct {
	most  int
	loads map[tenantOf]*tenantLoad
	// parts counts the records of each part, by which stores on package engine limit what a claim returns.
	parts map[partOf]int
	// freed says that a tenant has been at its limit since the last claim began, and is not any
	// more.
	freed bool
}

// tenantsOf returns the tenants of a topic.
func (w *Worker) tenantsOf(topic string) *tenants {
	if w.cfg.MaxPerTenant == 0 {
		return nil
	}
	t := w.tenants[topic]
	if t == nil {
		t = &tenants{most: w.cfg.MaxPerTenant, loads: map[tenantOf]*tenantLoad{}, parts: map[partOf]int{}}
		w.tenants[topic] = t
	}
	return t
}

// forgetTenants frees the memory for a topic of which the worker neither has nor reads records.
func (w *Worker) forgetTenants(topic string) {
	if t := w.tenants[topic]; t != nil && len(t.loads) == 0 && w.feeds[topic] == nil {
		delete(w.tenants, topic)
	}
}

func tenantOfItem(it *Item) tenantOf { return tenantOf{it.Record.Store, it.Record.TenantID} }

// tenantHeld counts a record that the worker begins to hold.
func (f *Feed) tenantHeld(it *Item) {
	if f.tenants == nil {
		return
	}
	tenant := tenantOfItem(it)
	load := f.tenants.loads[tenant]
	if load == nil {
		load = &tenantLoad{}
		f.tenants.loads[tenant] = load
	}
	load.records++
	f.tenants.parts[f.partOfItem(it)]++
}

func (f *Feed) partOfItem(it *Item) partOf {
	return partOf{it.Record.Store, storekit.PartOf(f.topic, it.Record.TenantID)}
}

// tenantFreed counts a record that the worker no longer holds. If its tenant was at its limit,
// the store may have more records of it, so the next claim covers the topic.
func (f *Feed) tenantFreed(it *Item) {
	if f.tenants == nil {
		return
	}
	w, tenant := f.worker, tenantOfItem(it)
	load := f.tenants.loads[tenant]
	if load == nil {
		return
	}
	if load.records--; load.records == 0 {
		delete(f.tenants.loads, tenant)
		w.forgetTenants(f.topic)
	}
	part, rest := f.partOfItem(it), f.tenants.most-partLimit(f.tenants.most)
	f.tenants.parts[part]--
	again := load.records == f.tenants.most-1 || f.tenants.parts[part] == rest
	if f.tenants.parts[part] == 0 {
		delete(f.tenants.parts, part)
	}
	if reader := w.feeds[f.topic]; reader != nil && again {
		f.tenants.freed = true
		reader.look.soon(time.Now())
		signal(w.poke)
	}
}

// fullParts returns the Full of a claim that covers the feeds, as of now; nil is no limit.
func (w *Worker) fullParts(covered []*Feed) func(store, topic string) uint64 {
	most := w.cfg.MaxPerTenant
	if most == 0 {
		return nil
	}
	full := map[tenantOf]uint64{} // of a store and a topic
	for _, f := range covered {
		f.tenants.freed = false
		for of, held := range f.tenants.parts {
			if held > most-partLimit(most) {
				full[tenantOf{of.store, f.topic}] |= 1 << of.part
			}
		}
	}
	return func(store, topic string) uint64 { return full[tenantOf{store, topic}] }
}

// tenantWaits reports whether a tenant has been freed since the last claim of the feed began.
func (f *Feed) tenantWaits() bool { return f.tenants != nil && f.tenants.freed }

// anyTenantHeld reports whether the limit of a tenant may hide records from a claim.
func (w *Worker) anyTenantHeld() bool {
	for _, f := range w.feeds {
		if f.tenants != nil && len(f.tenants.loads) > 0 {
			return true
		}
	}
	return false
}

// crowdedTenants returns the tenants of the feed that have been at their limit for a while with
// records that all wait behind others of their keys.
func (f *Feed) crowdedTenants(now time.Time) map[tenantOf]bool {
	if f.tenants == nil || f.solo != nil {
		return nil
	}
	ready := map[tenantOf]bool{}
	for _, it := range f.ready {
		if it.state == queued {
			ready[tenantOfItem(it)] = true
		}
	}
	crowded := map[tenantOf]bool{}
	for tenant, load := range f.tenants.loads {
		switch {
		case ready[tenant] || load.records <= f.tenants.most/2:
			load.crowdedSince = time.Time{}
		case load.records <= f.tenants.most-partLimit(f.tenants.most):
		case load.crowdedSince.IsZero():
			load.crowdedSince = now
		case now.Sub(load.crowdedSince) >= crowdPatience:
			crowded[tenant] = true
		}
	}
	return crowded
}
