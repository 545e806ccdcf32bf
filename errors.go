package outmill

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	backoffv4 "github.com/cenkalti/backoff/v4"
	backoffv5 "github.com/cenkalti/backoff/v5"
)

var (
	// ErrForeignTx says that the context carries a transaction, but of another store.
	ErrForeignTx = errors.New("outmill: the context carries a transaction of another store: pass the result of this store's WithTx, " +
		"or on MongoDB the context of its session")
	// ErrMixedTx says that messages of one Publish carry different transactions.
	ErrMixedTx = errors.New("outmill: the messages of one call carry different transactions: publish them in one call for each transaction")
	// ErrNoTx says that a transaction is required and the context carries none.
	ErrNoTx = errors.New("outmill: a transaction is required and the context carries none: pass the result of the store's WithTx, " +
		"or on MongoDB the context of the session")
	// ErrInvalidTx says that WithTx cannot use its argument as a transaction, or that the
	// transaction has ended: nothing was written.
	ErrInvalidTx = errors.New("outmill: not a usable transaction")
	// ErrLeaseLost says that a lease is not valid any more: the record was reaped, claimed by another
	// worker, settled or deleted. Nothing was written. Its handler must roll its work back, because
	// the message is handled again, or was handled before.
	ErrLeaseLost = errors.New("outmill: the lease was lost: roll the transaction back, because another worker may handle the message")
	// ErrClosed says that the publisher, subscriber, forwarder or store is closed.
	ErrClosed = errors.New("outmill: closed")
	// ErrHandlersRunning says that Close has returned while handlers were still
	// running. Their records stay leased; see the subscriber's Close.
	ErrHandlersRunning = errors.New("outmill: handlers were still running")
	// ErrNotFound says that no record has that id.
	ErrNotFound = errors.New("outmill: record not found")
	// ErrInvalidConfig says that a setting is refused. The error names it.
	ErrInvalidConfig = errors.New("outmill: invalid configuration")
	// ErrFairTopics says that this process has other FairTopics than the database, so it may neither append nor claim.
	// It is an ErrInvalidConfig.
	ErrFairTopics = fmt.Errorf("%w: the fair topics of this store are not those of the database: "+
		"give all processes the same FairTopics, and call SetFairTopics once to change them", ErrInvalidConfig)
	// ErrUndelivered says that a topic cannot become fair, or cease to be, because it has records that are neither processed nor
	// dead. Nothing was changed.
	ErrUndelivered = errors.New("outmill: the topic has undelivered records: have them delivered first, or delete them")
	// ErrFairOrder says that a claim in the order of a topic (OrderTopic) selects a fair topic, which has no order.
	// It is an ErrInvalidConfig.
	ErrFairOrder = fmt.Errorf("%w: a fair topic has no order as a whole: use OrderKey, or take it from the fair topics", ErrInvalidConfig)
	// ErrSchemaMissing says that the store's tables do not exist. The error names the command
	// that creates them.
	ErrSchemaMissing = errors.New("outmill: the schema is missing")
	// ErrSchemaOutdated says that the schema is older than this version of Outmill requires.
	ErrSchemaOutdated = errors.New("outmill: the schema is older than this program")
	// ErrSchemaNewer says that the schema was made by a newer version of Outmill.
	ErrSchemaNewer = errors.New("outmill: the schema is newer than this program")
	// ErrSchemaForeign says that a table or collection with a name of the schema exists and belongs
	// to another program. Ensure then writes nothing. The error names it and the setting that gives
	// Outmill's tables another name.
	ErrSchemaForeign = errors.New("outmill: a name of the schema belongs to another program")
	// ErrSchemaBusy says that an upgrade of the schema has not got its locks, because other
	// transactions use the tables for too long. Nothing is changed. The error names their sessions,
	// if any is known: end them, and call Ensure again.
	ErrSchemaBusy = errors.New("outmill: the schema is in use, so that it cannot be upgraded")
	// ErrTopicUnavailable says that the broker is available but refuses this topic (unknown,
	// not authorised). A publisher wraps it; a forwarder then holds that topic and continues
	// with the others.
	ErrTopicUnavailable = errors.New("outmill: topic unavailable")
	// ErrBrokerUnavailable says that the broker is unavailable, so the message is not the
	// cause. A forwarder pauses and counts no attempt.
	ErrBrokerUnavailable = errors.New("outmill: broker unavailable")
)

// CopiesError says that no record has the ID, but that other groups have records of the message, such as after the ack of the first
// group's. It is an ErrNotFound.
type CopiesError struct {
	ID WorkItemID
	// Copies are the ids of these records, by group.
	Copies map[string]WorkItemID
}

func (e *CopiesError) Error() string {
	copies := make([]string, 0, len(e.Copies))
	for _, group := range slices.Sorted(maps.Keys(e.Copies)) {
		copies = append(copies, fmt.Sprintf("%s of the group %q", e.Copies[group], group))
	}
	return fmt.Sprintf("%s: no record has the id %s any more; other groups have records of its message: %s", ErrNotFound, e.ID,
		strings.Join(copies, ", "))
}

// Is makes errors.Is(err, ErrNotFound) true.
func (e *CopiesError) Is(target error) bool { return target == ErrNotFound }

// Permanent wraps an error of a handler that no retry can fix: the record goes dead at
// once. Any number of nested Retry middlewares of Watermill stop at it too, and so does
// backoff.Retry of v4 and v5, which treat it as their own Permanent. Permanent(nil) is nil.
//
// A subscriber sees it only with the middleware subscriber.KeepError, because a nack alone
// carries no error.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// RetryAfter wraps an error of a handler that sets the wait before the next attempt itself;
// the retry policy's backoff does not apply. The attempt counts. RetryAfter(nil, d) is nil.
// Like Permanent, it needs subscriber.KeepError.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, delay}
}

// Snooze is returned by a handler that wants its message again after a delay. Nothing
// failed, and the attempt does not count, however often it comes. outmill why shows how often, and
// outmill doctor names a message from the 100th time in a row on. Like Permanent, it needs subscriber.KeepError.
// Watermill's PoisonQueue treats every error as a failure: inside KeepError use
// PoisonQueueWithFilter and [IsPermanent]. A PoisonQueue outside KeepError never sees a
// Snooze.
func Snooze(delay time.Duration) error {
	return &snoozeError{delay}
}

// IsPermanent reports whether err asks for no further attempt: Permanent, or
// Permanent of backoff v4 or v5.
func IsPermanent(err error) bool {
	if _, ok := SnoozeDelay(err); ok {
		return false
	}
	if _, ok := RetryAfterDelay(err); ok {
		return false
	}
	var ours *permanentError
	var v4 *backoffv4.PermanentError
	var v5 *backoffv5.PermanentError
	return errors.As(err, &ours) || errors.As(err, &v4) || errors.As(err, &v5)
}

// RetryAfterDelay returns the delay of a RetryAfter in err.
func RetryAfterDelay(err error) (time.Duration, bool) {
	var e *retryAfterError
	if !errors.As(err, &e) {
		return 0, false
	}
	return max(e.delay, 0), true
}

// SnoozeDelay returns the delay of a Snooze in err.
func SnoozeDelay(err error) (time.Duration, bool) {
	var e *snoozeError
	if !errors.As(err, &e) {
		return 0, false
	}
	return max(e.delay, 0), true
}

type permanentError struct{ err error }

func (e *permanentError) Error() string      { return e.err.Error() }
func (e *permanentError) Unwrap() error      { return e.err }
func (e *permanentError) As(target any) bool { return asPermanent(e, target) }

type retryAfterError struct {
	err   error
	delay time.Duration
}

func (e *retryAfterError) Error() string      { return e.err.Error() }
func (e *retryAfterError) Unwrap() error      { return e.err }
func (e *retryAfterError) As(target any) bool { return asPermanent(e, target) }

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string      { return fmt.Sprintf("outmill: snoozed for %s", e.delay) }
func (e *snoozeError) As(target any) bool { return asPermanent(e, target) }

// asPermanent lets errors.As find backoff's Permanent in a marker. If the marker were
// wrapped in a Permanent instead, the first Retry would unwrap it, and a second Retry
// around the first would continue.
func asPermanent(marker error, target any) bool {
	switch target := target.(type) {
	case **backoffv5.PermanentError:
		*target = &backoffv5.PermanentError{Err: marker}
	case **backoffv4.PermanentError:
		*target = &backoffv4.PermanentError{Err: marker}
	default:
		return false
	}
	return true
}
