package storekit

import "context"

// Waker hints that something may have become claimable. It is a hint: polling
// is always the fallback.
type Waker interface {
	// Wake calls woken when records of a topic may have become claimable, until ctx
	// ends: after an Append or a Release, and after a caller's commit where the
	// engine can tell. An empty topic stands for any topic, because the store does
	// not know which. One call may stand for several commits.
	//
	// The goroutine that appends calls woken, so woken returns at once and calls no
	// method of the store. It may be called concurrently, and a call that is under
	// way when ctx ends still finishes.
	Wake(ctx context.Context, woken func(topic string))
}
