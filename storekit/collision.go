package storekit

import (
	"errors"
	"time"

	"github.com/outmill/outmill"
)

// MostCollisions is how often in a row a message comes again after a Collision before each further
// one is logged, and counts as an attempt if Collision.Counts is set.
const MostCollisions = 10

// Collision is the error of a handler that could not do its work because another one was in its
// way, such as two handlers that change one saga. The message comes again after Delay, and no
// attempt counts, as after outmill.Snooze, which errors.As finds in it. Nobody has chosen that, so
// it must not go on for ever in silence: see MostCollisions.
type Collision struct {
	// Err says what was in the way. Its text and its identity are those of the Collision.
	Err   error
	Delay time.Duration
	// Counts says that too many in a row are failed attempts, because the cause may be one that
	// no repeat removes. False is for a wait that ends by itself.
	Counts bool
}

func (c *Collision) Error() string { return c.Err.Error() }

// Is compares the target with Err.
func (c *Collision) Is(target error) bool { return errors.Is(c.Err, target) }

// As finds a Snooze and not Err, so that the router does not log a collision, which is normal, as an
// error.
func (c *Collision) As(target any) bool { return errors.As(outmill.Snooze(c.Delay), target) }
