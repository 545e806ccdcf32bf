package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// workerKind is the kind of the entries of workers. Made is when the worker last registered its group, Value
// the problems that it reported, and the key that of the group and the name.
const workerKind = "worker"

// seeWorker notes the worker of a registration, and deletes those of the group that were not seen for long.
func (t *tx) seeWorker(ctx context.Context, reg outmill.Registration) error {
	if reg.Worker != "" {
		entry := driver.Entry{Kind: workerKind, Key: joined(reg.Group, reg.Worker), Made: t.now, Value: storekit.EncodeProblems(reg)}
		if err := t.Put(ctx, entry); err != nil {
			return err
		}
	}
	all, err := t.Scan(ctx, workerKind, joined(reg.Group, ""))
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b driver.Entry) int { return cmp.Compare(b.Made, a.Made) })
	since := t.now - driver.Time(storekit.KeepWorkersFor.Microseconds())
	kept := 0
	for kept < min(len(all), storekit.MaxWorkers) && all[kept].Made >= since {
		kept++
	}
	return t.Delete(ctx, all[kept:]...)
}

// stopWorkers notes that workers have stopped, those that there are.
func (t *tx) stopWorkers(ctx context.Context, regs []outmill.Registration) error {
	for _, reg := range regs {
		known, err := t.entry(ctx, false, workerKind, joined(reg.Group, reg.Worker))
		if err == nil && known != nil {
			known.Made, known.Value = t.now, storekit.EncodeProblems(reg)
			err = t.Put(ctx, *known)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// workers returns all workers.
func (t *tx) workers(ctx context.Context) ([]storekit.StoredWorker, error) {
	entries, err := t.Scan(ctx, workerKind, "")
	return mapped(entries, func(w driver.Entry) storekit.StoredWorker {
		group, name := parts(w.Key)
		return storekit.StoredWorker{Group: group, Name: name, SeenAt: w.Made.Of(), Problems: w.Value}
	}), err
}
