package mongo

import (
	"context"
	"sync"

	"github.com/outmill/outmill/storekit"
)

// undoing runs work that continues after the calls that began it: it gives back records that
// could not be handed out.
type undoing struct {
	ctx  context.Context
	end  context.CancelFunc
	mu   sync.Mutex
	work sync.WaitGroup
}

func newUndoing() *undoing {
	u := &undoing{}
	u.ctx, u.end = context.WithCancel(context.Background())
	return u
}

// start runs work in the background, with a context that ends after tryWithin, or when the Store
// is closed. After close it starts nothing.
func (u *undoing) start(work func(ctx context.Context)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		return
	}
	u.work.Go(func() {
		ctx, cancel := context.WithTimeout(u.ctx, tryWithin)
		defer cancel()
		work(ctx)
	})
}

// close cancels running work, and waits for its end.
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
