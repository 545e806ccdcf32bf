package storekit

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// ErrStoreAway says that a store could not be reached, or did not answer in time. The error of a call in a
// transaction with ErrStoreAway leaves open whether the transaction has committed.
//
// It is no failure of the message that a handler has: Decide has the message come again after a pause, and
// counts no attempt, if the handler's error has ErrStoreAway in its chain.
var ErrStoreAway = errors.New("outmill: the store does not answer")

// awayError marks an error as ErrStoreAway, and does not change its text.
type awayError struct{ error }

func (e awayError) Unwrap() error { return e.error }

func (awayError) Is(target error) bool { return target == ErrStoreAway }

// MarkAway marks the error of a call as ErrStoreAway if the connection could not be made or broke, or if the
// engine's error says, as its store knows, that the server is not there. The error of a call whose context
// has ended is not marked. Stores call it where they name the operation in the error.
func MarkAway(ctx context.Context, err error, engine func(err error) bool) error {
	if err == nil || Ended(ctx) != nil || errors.Is(err, ErrStoreAway) || !broke(err) && !engine(err) {
		return err
	}
	return awayError{err}
}

// Ended is ctx.Err(), and context.DeadlineExceeded from the deadline on. A connection ends at the deadline by itself, and on a busy machine
// the timer of ctx runs later. By ctx.Err() alone its error would look like that of a server that does not answer.
func Ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, is := ctx.Deadline(); is && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// broke reports whether a connection could not be made, or has ended.
func broke(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, driver.ErrBadConn)
}

// awayPause is the longest pause after which a message comes again whose handler's store is away, half of it the
// shortest.
const awayPause = 4 * time.Second

func pauseOfAway() time.Duration { return awayPause/2 + rand.N(awayPause/2) }
