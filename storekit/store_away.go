package storekit

import (
	"errors"
	"math/rand/v2"
	"time"
)

// ErrStoreAway says that a store could not be reached, or did not answer in time. The error of a call in a
// transaction with ErrStoreAway leaves open whether the transaction has committed.
//
// It is no failure of the message that a handler has: Decide has the message come again after a pause, and
// counts no attempt, if the handler's error has ErrStoreAway in its chain.
var ErrStoreAway = errors.New("outmill: the store does not answer")

// awayPause is the longest pause after which a message comes again whose handler's store is away, half of it the
// shortest.
const awayPause = 4 * time.Second

func pauseOfAway() time.Duration { return awayPause/2 + rand.N(awayPause/2) }
