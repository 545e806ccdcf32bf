package mongo

import (
	"context"
	"sync"
	"time"

	"github.com/outmill/outmill/storekit"
)

// undoing runs work that continues after the calls that began it: it gives back records that
// could not be handed out, and turns.
type undoing struct {
	ctx  context.Context
	end  context.CancelFunc
	mu   sync.Mutex
	work sync.WaitGroup
}

// lastTry bounds the last attempt of work when the Store is closed.
const lastTry = time.Second

func newUndoing() *undoing {
	u := &undoing{}
	u.ctx, u.end = context.WithCancel(context.Background())
	return u
}

// start repeats fn in the background until it succeeds, for at most tryWithin. It calls failed with
// the last error if fn does not succeed. After close it starts nothing.
func (u *undoing) start(fn func(ctx context.Context) error, failed func(err error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		return
	}
	u.work.Go(func() {
		ctx, cancel := context.WithTimeout(u.ctx, tryWithin)
		defer cancel()
		err := untilDone(ctx, fn)
		if err != nil && u.ctx.Err() != nil {
			// A process that stops cancels its calls, which begin this work, and closes the Store.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
			defer cancel()
			err = fn(last)
		}
		if err != nil {
			failed(err)
		}
	})
}

// close interrupts running work, lets it try for the last time, and waits for its end.
func (u *undoing) close() {
	u.mu.Lock()
	u.end()
	u.mu.Unlock()
	u.work.Wait()
}

// untilDone repeats fn after every error until it succeeds or ctx ends.
func untilDone(ctx context.Context, fn func(ctx context.Context) error) error {
	for {
		err := fn(ctx)
		if err == nil || storekit.Pause(ctx, lastPause) != nil {
			return err
		}
	}
}
