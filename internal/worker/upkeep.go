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

// upkeepBatch limits the records of each call of the upkeep.
const upkeepBatch = 1000

// Upkeep does a janitor's rounds for a store until ctx ends. A round reaps expired leases,
// expires records and registrations, and deletes records, dedup keys, notes,
// finished sagas and joins that are no longer retained. Then it calls round, if given, even after an error. Between the
// rounds the store does its own maintenance: see Maintained.
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

// Rounds calls round at each interval until ctx ends. The first round begins after a random
// part of the interval, so that processes that start at the same time do not work at the
// same time. Errors are logged; the next round tries again.
func Rounds(ctx context.Context, queue outmill.Queue, interval time.Duration, log watermill.LoggerAdapter,
	round func(context.Context) error) {
	paced(ctx, interval, func() time.Duration {
		if err := round(ctx); err != nil && ctx.Err() == nil {
			log.Error("Upkeep of the store failed, will try again", err, watermill.LogFields{"store": queue.Name()})
		}
		return interval
	})
}

// paced calls round until ctx ends: first after a random part of first, and then after the
// pause that round returns.
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
	// maintainEvery is the time between two calls of Maintain if no work is left.
	maintainEvery = 2 * time.Second
	// maintainShare times the duration of a call is the pause after it if more work is left,
	// so that maintenance uses a fifth of one connection.
	maintainShare = 4
	// maintainPause is the pause after a call that failed.
	maintainPause = 30 * time.Second
	// maintainAtOnce limits the calls of Maintain in MaintainOnce.
	maintainAtOnce = 100
)

// Maintained calls the store's Maintain until ctx ends, with pauses that leave most of the
// database's capacity to other work. Errors are logged.
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
			log.Error("Maintenance of the store failed, will try again", err, watermill.LogFields{"store": queue.Name()})
			return maintainPause
		case more:
			return min(maintainShare*time.Since(began), maintainPause)
		}
		return maintainEvery
	})
}

// MaintainOnce calls the store's Maintain until no work is left, for a process that ends
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

// Tidy does one round of a janitor for the store.
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
	if sagas, ok := outmill.As[storekit.SagaRetention](queue); ok {
		_, sagasErr := repeat(ctx, sagas.DeleteOldSagas)
		err = errors.Join(err, sagasErr)
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

// expireRegistrations logs the ended registrations and deleted records even if its last
// call failed.
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

// WarnUnread warns of topics whose due records no worker seems to read: topics that no
// group has registered for, and topics of this group for which reads returns false and
// whose records have been due for longer than patience.
func WarnUnread(ctx context.Context, queue outmill.Queue, log watermill.LoggerAdapter, group string, reads func(topic string) bool,
	patience time.Duration) error {
	inspector, ok := outmill.As[outmill.Inspector](queue)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	// A limit of 1 is the cheapest, and only OldestDue matters here.
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
