package mongo

import (
	"context"
	"sync"

	"github.com/outmill/outmill/storekit"
)

// undoing is what goes on after the calls that began it: giving back what was leased
// in vain.
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

// start runs work in the background, with a context that ends after tryWithin, or with
// the Store. A Store that is closed starts nothing.
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

// close ends what runs, and waits for that.
func (u *undoing) close() {
	u.mu.Lock()
	u.end()
	u.mu.Unlock()
	u.work.Wait()
}

// untilDone runs fn until it succeeds, whatever it fails for, or ctx ends.
func untilDone(ctx context.Context, fn func(ctx context.Context) error) error {
	for {
		err := fn(ctx)
		if err == nil || storekit.Pause(ctx, lastPause) != nil {
			return err
		}
	}
}
