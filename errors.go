package outmill

import (
	"errors"
	"fmt"
	"time"

	backoffv4 "github.com/cenkalti/backoff/v4"
	backoffv5 "github.com/cenkalti/backoff/v5"
)

var (
	// ErrForeignTx says that the context carries a transaction, but of another store.
	ErrForeignTx = errors.New("outmill: the context carries a transaction of another store: pass the result of this store's WithTx")
	// ErrMixedTx says that messages of one Publish carry different transactions.
	ErrMixedTx = errors.New("outmill: the messages of one call carry different transactions: publish them in one call for each transaction")
	// ErrNoTx says that a transaction is required and the context carries none.
	ErrNoTx = errors.New("outmill: a transaction is required and the context carries none: pass the result of the store's WithTx")
	// ErrInvalidTx says that what was passed to WithTx cannot be used as a transaction.
	ErrInvalidTx = errors.New("outmill: not a usable transaction")
	// ErrClosed says that the publisher, subscriber, forwarder or store is closed.
	ErrClosed = errors.New("outmill: closed")
	// ErrHandlersRunning says that Close has returned while handlers were still
	// running. Their records stay leased; see the subscriber's Close.
	ErrHandlersRunning = errors.New("outmill: handlers were still running")
	// ErrNotFound says that no record has that id.
	ErrNotFound = errors.New("outmill: record not found")
	// ErrInvalidConfig says that a setting is refused. The error names it.
	ErrInvalidConfig = errors.New("outmill: invalid configuration")
	// ErrSchemaMissing says that the store's tables do not exist. The error names the
	// command that makes them.
	ErrSchemaMissing = errors.New("outmill: the schema is missing")
	// ErrSchemaOutdated says that the schema is older than this version of Outmill wants.
	ErrSchemaOutdated = errors.New("outmill: the schema is older than this program")
	// ErrSchemaNewer says that the schema was made by a newer version of Outmill.
	ErrSchemaNewer = errors.New("outmill: the schema is newer than this program")
	// ErrTopicUnavailable says that the broker is there, but will not take this topic
	// (unknown, not authorised). A publisher wraps it; a forwarder then holds
	// that topic and goes on with the others.
	ErrTopicUnavailable = errors.New("outmill: topic unavailable")
	// ErrBrokerUnavailable says that the broker is away, and the message is not to blame.
	// A forwarder pauses and counts no attempt.
	ErrBrokerUnavailable = errors.New("outmill: broker unavailable")
)

// Permanent wraps an error of a handler that no retry can mend: the record
// goes dead at once. Watermill's Retry middleware stops at it too, however many
// of them there are, and so does backoff.Retry of v4 and v5: to them it is a
// Permanent of their own. Permanent(nil) is nil.
//
// It takes effect where the subscriber learns of the error: behind the
// middleware subscriber.KeepError, since a nack alone carries no reason.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// RetryAfter wraps an error of a handler that says itself when the record is
// worth another attempt, instead of the retry policy's backoff. The attempt is
// counted. RetryAfter(nil, d) is nil. See Permanent for how it travels.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, delay}
}

// Snooze is returned by a handler that wants its message again after a delay:
// nothing failed, no attempt is counted. See Permanent for how it travels.
// Watermill's PoisonQueue takes every error for a failure: inside of KeepError use
// PoisonQueueWithFilter and [IsPermanent]. Outside of it nobody sees a Snooze.
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

// asPermanent makes a marker backoff's Permanent for errors.As. Were it wrapped
// in one instead, the first Retry would take the wrapping off, and a second
// Retry around it would go on.
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
