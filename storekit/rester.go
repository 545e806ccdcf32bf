package storekit

import (
	"context"
	"sync"

	"github.com/outmill/outmill/roles"
)

// RestOf implements Resting for a kind of store that asks each store by itself, so many at the same
// time. It passes each of the stores to ask, in their order if atOnce is 1, and returns an error of
// the caller's context or of a store of another kind. A store for which ask fails is not at rest.
func RestOf[S roles.Idle](
	ctx context.Context, stores []any, atOnce int, ask func(ctx context.Context, store S) (bool, error),
) ([]bool, error) {
	list := make([]S, len(stores))
	for i, other := range stores {
		store, ok := other.(S)
		if !ok {
			return nil, InvalidConfig("Resting got a %T: want what IdleWith of such stores returns", other)
		}
		list[i] = store
	}
	resting := make([]bool, len(stores))
	var work sync.WaitGroup
	for first := range min(atOnce, len(list)) {
		work.Go(func() {
			for i := first; i < len(list) && ctx.Err() == nil; i += atOnce {
				rests, err := ask(ctx, list[i])
				resting[i] = rests && err == nil
			}
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return resting, nil
}
