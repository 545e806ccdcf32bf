package janitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// chore is one kind of work.
type chore struct {
	name string
	// batch does up to limit things, and reports whether it was a full batch, after which more
	// may be left. It counts what it did even if it fails.
	batch func(ctx context.Context, limit int) (full bool, err error)
}

// round does each chore until no work is left. If end is not zero, no turn begins after it but
// the first, because a round that comes late on a busy machine must also do some work. The
// chores take turns, so that a long one holds up no other. left says that some work is left. A store that is idle is
// asked that, and nothing else.
func (j *Janitor) round(ctx context.Context, end time.Time) (report Report, left bool, err error) {
	todo := j.chores(&report)
	if j.idle(ctx, todo) {
		todo = nil
	}
	var errs []error
	for first := true; len(todo) > 0 && ctx.Err() == nil; first = false {
		if !first && !end.IsZero() && !time.Now().Before(end) {
			break
		}
		var again []chore
		for _, c := range todo {
			full, err := j.batch(ctx, c)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			} else if full {
				again = append(again, c)
			}
		}
		todo = again
	}
	err = errors.Join(append(errs, ctx.Err())...)
	j.tell(report, err)
	return report, len(todo) > 0, err
}

// idle reports whether the store says that no chore would find work, which is what the chores would say. Of an error
// the chores tell.
func (j *Janitor) idle(ctx context.Context, all []chore) bool {
	asker, ok := outmill.As[roles.Idle](j.store)
	if !ok {
		return false
	}
	_, self := asker.IdleWith()
	began := time.Now()
	idle, err := worker.Bounded(ctx, worker.UpkeepWithin, func(ctx context.Context) (bool, error) {
		answers, err := asker.AreIdle(ctx, []any{self})
		return err == nil && answers[0], err
	})
	if err != nil || !idle {
		return false
	}
	for _, c := range all {
		j.calls.Note(ctx, storekit.CallUpkeep, c.name, began, nil)
	}
	return true
}

// batch does one batch of a chore, and pauses after a full one.
func (j *Janitor) batch(ctx context.Context, c chore) (full bool, err error) {
	began := time.Now()
	full, err = worker.Bounded(ctx, worker.UpkeepWithin, func(ctx context.Context) (bool, error) { return c.batch(ctx, j.cfg.BatchSize) })
	j.calls.Note(ctx, storekit.CallUpkeep, c.name, began, err)
	if full && err == nil {
		err = j.pause(ctx, time.Since(began))
	}
	return full, err
}

// chores are the kinds of work that the store has the roles for. Those that make records due
// or dead come first, because somebody waits for them.
func (j *Janitor) chores(r *Report) []chore {
	list := []chore{counted("reap ended leases", &r.Reaped, j.store.ReapExpired)}
	janitor, isJanitor := outmill.As[outmill.Janitor](j.store)
	if isJanitor {
		list = append(list, counted("expire records", &r.Expired, janitor.ExpireDue),
			chore{"end registrations", func(ctx context.Context, limit int) (bool, error) {
				registrations, records, err := janitor.ExpireRegistrations(ctx, limit)
				r.Registrations, r.Unread = r.Registrations+registrations, r.Unread+records
				return registrations >= limit || records >= limit, err
			}},
			counted("delete processed records", &r.Processed, janitor.DeleteProcessed))
	}
	if joins, ok := outmill.As[roles.Joins](j.store); ok {
		list = append(list, counted("delete joins", &r.Joins, joins.DeleteJoins))
	}
	if inbox, ok := outmill.As[roles.Inbox](j.store); ok {
		list = append(list, counted("delete notes", &r.Notes, inbox.DeleteNotes))
	}
	if sagas, ok := outmill.As[roles.Sagas](j.store); ok {
		list = append(list, counted("delete sagas", &r.Sagas, sagas.DeleteOldSagas))
	}
	if audit, ok := outmill.As[roles.Repairs](j.store); ok {
		list = append(list, counted("delete old audit entries", &r.Audit, audit.DeleteOldAudit))
	}
	if isJanitor {
		list = append(list, counted("delete dedup keys", &r.DedupKeys, janitor.DeleteDedupKeys))
	}
	return list
}

func counted(name string, count *int, work func(context.Context, int) (int, error)) chore {
	return chore{name, func(ctx context.Context, limit int) (bool, error) {
		n, err := work(ctx, limit)
		*count += n
		return n >= limit, err
	}}
}

// tell logs what a round did and reports it to OnRound. What made records dead or deleted
// unread ones is for the operator; the rest is for debugging.
func (j *Janitor) tell(r Report, err error) {
	if r.Expired > 0 {
		j.log.Info("Records expired and are dead", watermill.LogFields{"count": r.Expired})
	}
	if r.Registrations+r.Unread > 0 {
		j.log.Info("Registrations ended, and the undelivered records of topics that their groups no longer read were deleted",
			watermill.LogFields{"registrations": r.Registrations, "records": r.Unread})
	}
	if r.Total() > 0 {
		j.log.Debug("The janitor's round has ended", r.fields())
	}
	if j.cfg.OnRound == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			j.log.Error("OnRound panicked", fmt.Errorf("%v", p), nil)
		}
	}()
	j.cfg.OnRound(r, err)
}
