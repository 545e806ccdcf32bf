package suite

import (
	"context"

	"github.com/stretchr/testify/require"
)

// Wired is storetest.Wired.
type Wired interface {
	Tap(ctx context.Context) (tapped context.Context, sent func() [][]any)
}

// Tap returns an Env that records the values which its calls send, and a function that returns those of each round
// trip so far. It skips the test if the Harness is not Wired.
func (e *Env) Tap() (tapped *Env, sent func() [][]any) {
	e.T.Helper()
	harness, ok := e.Harness.(Wired)
	if !ok {
		e.T.Skip("skipped: what is sent; the Harness is no storetest.Wired")
	}
	ctx, sent := harness.Tap(e.Ctx)
	return e.Under(ctx), sent
}

// Few and Many are the numbers of records of the two calls of RequireBounded.
const (
	Few  = 10
	Many = 100
)

// RequireBounded checks that a call for Many records takes only a few more round trips than a
// call for Few. Some more are allowed, because a store may write large calls in another way.
func (e *Env) RequireBounded(forFew, forMany func(e *Env)) {
	e.T.Helper()
	trips := func(call func(e *Env)) int {
		tapped, sent := e.Tap()
		call(tapped)
		return len(sent())
	}
	small := trips(forFew)
	require.Positive(e.T, small, "nothing was noted")
	large := trips(forMany)
	require.LessOrEqual(e.T, large, 3*small+Few/2, "round trips for %d, of %d for %d", Many, small, Few)
}
