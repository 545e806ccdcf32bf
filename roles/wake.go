package roles

import (
	"context"
)

// Waker signals that records may have become claimable. The signal is only a hint, so
// readers also poll.
type Waker interface {
	// Wake calls woken when records of a topic may have become claimable, until ctx ends:
	// after an Append or a Release, and after a caller's commit if the engine reports commits.
	// An empty topic stands for any topic; a store uses it if it does not know the topic. One
	// call may stand for several commits.
	//
	// The goroutine that appends calls woken, so woken must return at once and must not call
	// the store. It may be called concurrently. A call that is in progress when ctx ends still
	// finishes.
	Wake(ctx context.Context, woken func(topic string))

	// HearsOthers reports whether the Waker may also hear of the commits of other processes. Its readers
	// then poll half as often while nothing comes.
	HearsOthers() bool
}
