package engine

import (
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// The methods of this file are the table of states in docs/store-rules.md. Nothing else changes the stage, the
// times and the counters of a row.
//
//	event                            from                               to
//	append                                                              Ready, Delayed
//	admit: a claim meets a due row   Waiting, Delayed, Leased           Ready
//	hold: its key is blocked         Ready, Leased                      Held
//	expire: a claim or the janitor   Ready, Held, Waiting, Delayed,     Dead
//	meets it after its expiry        Leased
//	lease                            Ready, Held, Waiting, Delayed,     Leased
//	                                 Leased
//	giveBack, reap                   Leased                             Ready, Waiting
//	abandon, snooze                  Leased                             Waiting
//	fail                             Leased                             Dead
//	kill                             all but Processed                  Dead
//	process                          Leased                             Processed
//	requeue                          Dead                               Waiting, Delayed
//	hurry: its join is decided       Waiting, Delayed                   the same, due
//	unroute: its group is dropped    all but Processed, Dead            Ready, Delayed
//
// A row in stage Leased gets there from stage Leased only after its lease has ended.
//
// A row that cannot be decoded goes dead (kill) instead of any change to a stage before Processed, except that an
// operator requeues it, that its lease is extended, or that it loses its group: see tx.change. A claim also kills a row
// that is too large for its publisher, and a suspect whose attempts are used up (claim.take). A row whose content cannot
// be decoded is failed by the claim that has leased it (readClaimed).

// expiredError is the last error of a record that expired.
const expiredError = "expired"

func expired(r *driver.Row, now driver.Time) bool { return r.Expires != 0 && r.Expires <= now }

// due reports whether the row waits for a claim to admit it.
func due(r *driver.Row, now driver.Time) bool {
	return driver.Waiting <= r.Stage && r.Stage <= driver.Leased && r.Wake <= now
}

// blocks reports whether later rows of the key may wait for the row, or the row for others: then the key must
// be looked at after a change of the row.
func blocks(r *driver.Row) bool {
	return driver.Held <= r.Stage && r.Stage <= driver.Leased
}

// move gives the row its stage, and ends its lease and its holding.
func move(r *driver.Row, stage driver.Stage, wake driver.Time) {
	r.Stage, r.Wake, r.Owner, r.Worker, r.Under = stage, wake, "", "", ""
}

// wait has the row wait for its Next or its expiry, whichever is first.
func wait(r *driver.Row, stage driver.Stage) {
	wake := r.Next
	if r.Expires != 0 {
		wake = min(wake, r.Expires)
	}
	move(r, stage, wake)
}

// expiriesOf counts the expiry of a lease that has ended, too.
func expiriesOf(r *driver.Row) int {
	if r.Stage == driver.Leased {
		return r.Expiries + 1
	}
	return r.Expiries
}

// endLease counts the expiry of a lease that has ended, if the row has one.
func endLease(r *driver.Row) {
	if r.Stage != driver.Leased {
		return
	}
	if r.Expiries >= outmill.SuspectExpiries {
		attempted(r, r.Wake, leaseEndedError)
	}
	r.Expiries++
}

func lease(r *driver.Row, owner, worker string, until driver.Time) {
	endLease(r)
	move(r, driver.Leased, until)
	r.Owner, r.Worker = owner, worker
	r.Claims++
}

// unlease undoes a lease that nobody has got. The note that held the row may be gone.
func unlease(r *driver.Row, was driver.Row) {
	*r = was
	if was.Stage == driver.Held {
		move(r, driver.Ready, 0)
	}
}

// admit makes a row ready whose Wake has come.
func admit(r *driver.Row, now driver.Time) {
	endLease(r)
	if expired(r, now) {
		expire(r)
		return
	}
	move(r, driver.Ready, 0)
}

// expire makes a row dead whose expiry has come.
func expire(r *driver.Row) { kill(r, expiredError) }

// hold holds the row under a note.
func hold(r *driver.Row, under string) {
	endLease(r)
	move(r, driver.Held, 0)
	r.Under = under
}

// hurry makes a row due whose join is decided.
func hurry(r *driver.Row, now driver.Time) {
	r.Next = now
	wait(r, r.Stage)
}

// giveBack makes a leased row due as before its claim.
func giveBack(r *driver.Row) {
	if r.Next > r.Created {
		wait(r, driver.Waiting)
		return
	}
	move(r, driver.Ready, 0)
}

// reap ends a lease that has ended by time.
func reap(r *driver.Row) {
	endLease(r)
	giveBack(r)
}

func abandon(r *driver.Row, now, next driver.Time, reason string) {
	attempted(r, now, reason)
	snooze(r, next)
	r.Error = &reason
}

func snooze(r *driver.Row, next driver.Time) {
	r.Next, r.Expiries = next, 0
	wait(r, driver.Waiting)
}

// fail makes a row dead after a handling.
func fail(r *driver.Row, now driver.Time, reason string) {
	attempted(r, now, reason)
	kill(r, reason)
}

func kill(r *driver.Row, reason string) {
	move(r, driver.Dead, 0)
	r.Error = &reason
}

// park makes a row dead along with an earlier one of its key.
func park(r *driver.Row) {
	kill(r, storekit.ParkedError)
	r.Parked = true
}

// markSkipped has a dead row stay until all that it has parked is requeued. Its Next is when that is due.
func markSkipped(r *driver.Row) {
	reason := storekit.SkippedError
	r.Parked, r.Error = false, &reason
}

func process(r *driver.Row, by string, now driver.Time) {
	move(r, driver.Processed, 0)
	r.Processed, r.By = now, by
}

// requeue has a dead row wait until now, so that the next claim admits it in its place. A row without a group
// was never claimed by one.
func requeue(r *driver.Row, now driver.Time) {
	r.Next, r.Expires, r.Attempts, r.Expiries, r.Parked = now, 0, 0, 0, false
	stage := driver.Waiting
	if r.Group == "" {
		stage = driver.Delayed
	}
	wait(r, stage)
}

// unroute makes a row as if it were appended without a group. first is when it was due at first.
func unroute(r *driver.Row, first driver.Time) {
	r.Group, r.Next, r.Attempts, r.Expiries = "", first, 0, 0
	if first > r.Created {
		wait(r, driver.Delayed)
		return
	}
	move(r, driver.Ready, 0)
}

func statusOf(stage driver.Stage) outmill.Status {
	switch stage {
	case driver.Leased:
		return outmill.StatusLeased
	case driver.Processed:
		return outmill.StatusProcessed
	case driver.Dead:
		return outmill.StatusDead
	default:
		return outmill.StatusPending
	}
}

// fill sets the fields of the record that the row has.
func fill(record *outmill.Record, r *driver.Row) {
	record.ID, record.Topic, record.Key, record.TenantID = r.ID, r.Topic, r.Key, r.Tenant
	record.Group, record.Status, record.WaitsFor = r.Group, statusOf(r.Stage), r.WaitsFor
	record.CreatedAt, record.ExpiresAt = r.Created.Of(), r.Expires.Of()
	record.Attempts, record.Claims, record.Expiries = r.Attempts, r.Claims, r.Expiries
	record.ProcessedAt, record.ProcessedBy, record.Unreadable = r.Processed.Of(), r.By, r.Broken
	record.NextAttemptAt, record.LeaseUntil, record.Owner, record.Worker = time.Time{}, time.Time{}, outmill.OwnerToken{}, r.Worker
	switch {
	case r.Stage == driver.Leased:
		record.LeaseUntil = r.Wake.Of()
		if record.Owner.Scan(r.Owner) != nil {
			record.Owner = outmill.OwnerToken{}
		}
	case record.Status == outmill.StatusPending && !r.Blocked:
		record.NextAttemptAt = r.Next.Of()
	}
}
