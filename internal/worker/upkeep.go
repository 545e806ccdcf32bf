package worker

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// upkeepBatch bounds each statement of the upkeep.
const upkeepBatch = 1000

// Upkeep does a janitor's rounds for a store until ctx ends: it reaps expired
// leases, expires records and registrations, deletes records, dedup keys, notes and
// joins that are no longer retained, and calls round, if given, at the end of each, whatever went
// wrong before. In between it has the store do its own housekeeping: see Maintained.
func Upkeep(ctx context.Context, queue outmill.Queue, interval time.Duration, log watermill.LoggerAdapter,
	round func(context.Context) error) {
	var maintained sync.WaitGroup
	maintained.Go(func() { Maintained(ctx, queue, log) })
	defer maintained.Wait()
	Rounds(ctx, queue, interval, log, func(ctx context.Context) error {
		err := Tidy(ctx, queue, log)
		if round != nil {
			err = errors.Join(err, round(ctx))
		}
		return err
	})
}

// Rounds calls round at each interval until ctx ends. The first one begins
// after a random part of the interval, so that processes that start together
// do not work together. Errors are logged; the next round tries again.
func Rounds(ctx context.Context, queue outmill.Queue, interval time.Duration, log watermill.LoggerAdapter,
	round func(context.Context) error) {
	paced(ctx, interval, func() time.Duration {
		if err := round(ctx); err != nil && ctx.Err() == nil {
			log.Error("Upkeep of the store failed, will try again", err, watermill.LogFields{"store": queue.Name()})
		}
		return interval
	})
}

// paced calls round until ctx ends, first after a random part of the time given, and then
// after the pause that it returns.
func paced(ctx context.Context, first time.Duration, round func() (pause time.Duration)) {
	timer := time.NewTimer(1 + rand.N(first))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(round())
	}
}

const (
	// maintainEvery is how often a store is asked whether it has housekeeping to do.
	maintainEvery = 2 * time.Second
	// maintainShare: between two calls of a store that has more to do there is a pause of
	// so many times what the call took, so that it takes a fifth of one connection.
	maintainShare = 4
	// maintainPause is the pause after a call that failed.
	maintainPause = 30 * time.Second
	// maintainAtOnce bounds the calls of MaintainOnce.
	maintainAtOnce = 100
)

// Maintained has the store do its own housekeeping until ctx ends, at a pace that leaves
// the database to others. Errors are logged.
func Maintained(ctx context.Context, queue outmill.Queue, log watermill.LoggerAdapter) {
	janitor, ok := outmill.As[outmill.Janitor](queue)
	if !ok {
		return
	}
	paced(ctx, maintainEvery, func() time.Duration {
		began := time.Now()
		more, err := janitor.Maintain(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			log.Error("The store's housekeeping failed, will try again", err, watermill.LogFields{"store": queue.Name()})
			return maintainPause
		case more:
			return min(maintainShare*time.Since(began), maintainPause)
		}
		return maintainEvery
	})
}

// MaintainOnce has the store do the housekeeping that there is, for a process that ends
// soon.
func MaintainOnce(ctx context.Context, queue outmill.Queue) error {
	janitor, ok := outmill.As[outmill.Janitor](queue)
	if !ok {
		return nil
	}
	for range maintainAtOnce {
		if more, err := janitor.Maintain(ctx); err != nil || !more {
			return err
		}
	}
	return nil
}

// Tidy does one round for the store.
func Tidy(ctx context.Context, queue outmill.Queue, log watermill.LoggerAdapter) error {
	_, err := repeat(ctx, queue.ReapExpired)
	if joins, ok := outmill.As[storekit.Joins](queue); ok {
		_, joinsErr := repeat(ctx, joins.DeleteJoins)
		err = errors.Join(err, joinsErr)
	}
	if inbox, ok := outmill.As[storekit.Inbox](queue); ok {
		_, notesErr := repeat(ctx, inbox.DeleteNotes)
		err = errors.Join(err, notesErr)
	}
	janitor, ok := outmill.As[outmill.Janitor](queue)
	if !ok {
		return err
	}
	expired, expireErr := repeat(ctx, janitor.ExpireDue)
	if expired > 0 {
		log.Info("Records expired and are dead", watermill.LogFields{"count": expired, "store": queue.Name()})
	}
	_, processedErr := repeat(ctx, janitor.DeleteProcessed)
	_, dedupErr := repeat(ctx, janitor.DeleteDedupKeys)
	return errors.Join(err, expireErr, processedErr, dedupErr, expireRegistrations(ctx, queue.Name(), janitor, log))
}

// expireRegistrations tells of what it did even where it failed in the end.
func expireRegistrations(ctx context.Context, store string, janitor outmill.Janitor, log watermill.LoggerAdapter) error {
	registrations, records := 0, 0
	for {
		ended, deleted, err := janitor.ExpireRegistrations(ctx, upkeepBatch)
		registrations, records = registrations+ended, records+deleted
		if err == nil && (ended == upkeepBatch || deleted == upkeepBatch) {
			continue
		}
		if registrations+records > 0 {
			log.Info("Registrations ended, and the undelivered records of topics that their groups no longer read were deleted", watermill.LogFields{
				"registrations": registrations, "records": records, "store": store,
			})
		}
		return err
	}
}

func repeat(ctx context.Context, work func(context.Context, int) (int, error)) (int, error) {
	total := 0
	for {
		n, err := work(ctx, upkeepBatch)
		total += n
		if err != nil || n < upkeepBatch {
			return total, err
		}
	}
}

// WarnUnread logs the topics whose due records nobody seems to read: those
// that no group has registered for, and those of this group that have been due
// for longer than patience and that reads denies.
func WarnUnread(ctx context.Context, queue outmill.Queue, log watermill.LoggerAdapter, group string, reads func(topic string) bool,
	patience time.Duration) error {
	inspector, ok := outmill.As[outmill.Inspector](queue)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	// Whether there is any is all that matters: a count of 1 costs least.
	stats, err := inspector.Stats(ctx, 1)
	if err != nil {
		return err
	}
	for _, t := range stats {
		fields := watermill.LogFields{"topic": t.Topic, "group": t.Group, "store": cmp.Or(t.Store, queue.Name()),
			"oldest_due": t.OldestDue.UTC().Format(time.RFC3339)}
		switch {
		case t.OldestDue.IsZero():
		case t.Group == "":
			log.Error("Warning: records are due that no group has registered for; subscribe to the topic, forward it, or stop publishing to it", nil,
				fields)
		case t.Group == group && !reads(t.Topic) && time.Since(t.OldestDue) > patience:
			log.Error("Warning: records of this group are due and this process does not read their topic; make sure that another one does", nil,
				fields)
		}
	}
	return nil
}
