package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// ReadsPart names the calls of WarnReads in storekit.CallUpkeep.
const ReadsPart = "look for workers with another order"

// Reads returns how the workers of the name in this process read, as a registration can report it. own
// are those of the caller that are about to begin.
func Reads(queue outmill.Queue, group, name string, own ...outmill.Reading) []outmill.Reading {
	if name == "" {
		return nil
	}
	all := slices.Clone(own)
	for _, p := range present.of(reportNameOf(queue, group, name)) {
		all = append(all, p.reads()...)
	}
	return merged(all)
}

// merged joins the plain selections that are read in one way, so that the report is small. It leaves out the readings
// that are too many for a registration.
func merged(all []outmill.Reading) (reads []outmill.Reading) {
	for _, r := range all {
		i := slices.IndexFunc(reads, func(m outmill.Reading) bool {
			return m.Order == r.Order && m.KeyPolicy == r.KeyPolicy && plain(m.Topics) && plain(r.Topics)
		})
		switch {
		case i >= 0:
			reads[i].Topics.Include = append(slices.Clip(reads[i].Topics.Include), r.Topics.Include...)
		case !slices.ContainsFunc(reads, func(m outmill.Reading) bool { return fmt.Sprint(m) == fmt.Sprint(r) }):
			reads = append(reads, r)
		}
	}
	left := storekit.MaxReads
	for i := range reads {
		t := &reads[i].Topics
		if plain(*t) && left > 0 {
			t.Include = slices.Compact(slices.Sorted(slices.Values(t.Include)))
			t.Include = t.Include[:min(len(t.Include), left)]
		}
		if left -= max(1, len(t.Include)+len(t.Exclude)); left < 0 {
			return reads[:i]
		}
	}
	return reads
}

// plain reports whether the selection is a list of entries alone.
func plain(t outmill.Topics) bool { return len(t.Include) > 0 && len(t.Exclude) == 0 }

// WarnReads warns once if workers of the group, of this process or another one, read a topic of this worker
// in another order or by another policy. It asks the store only if what this worker reads has changed since
// it asked last. Its calls must not overlap. The log has the fields store and group.
func (p *Presence) WarnReads(ctx context.Context, log watermill.LoggerAdapter) error {
	own := fmt.Sprint(Reads(p.queue, p.name.group, p.name.name))
	inspector, ok := outmill.As[outmill.Inspector](p.queue)
	if !ok || p.warned || p.name.name == "" || own == p.warnedOf {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	groups, err := inspector.Groups(ctx)
	if storekit.NoneAnswered(err) {
		return err
	}
	p.warnedOf = own
	for _, g := range groups {
		if g.Group != storekit.GroupOf(p.name.group) {
			continue
		}
		for _, c := range storekit.ReadConflicts(g, runs) {
			if !p.takesPart(c) {
				continue
			}
			p.warned = true
			log.Error("Warning: workers of this group read a topic in different orders or by different policies. "+storekit.ReadConflictRemedy, nil,
				watermill.LogFields{"topic": c.Topics[0], "workers": c.String()})
			return err
		}
	}
	return err
}

func (p *Presence) takesPart(c storekit.ReadConflict) bool {
	return slices.ContainsFunc(c.Ways, func(way storekit.ReadWay) bool { return slices.Contains(way.Workers, p.name.name) })
}

// runs reports whether a worker seems to run.
func runs(w outmill.WorkerInfo) bool { return !w.Stopped && time.Since(w.SeenAt) < readWithin }
