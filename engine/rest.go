package engine

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ roles.Idle = (*Engine)(nil)

// endingKinds are the kinds of entries for which the janitor has work when their At has come.
var endingKinds = []string{dedupKind, registrationKind, endedKind, noteKind, sagaKind}

// onEngine is an Engine, or a store that embeds one.
type onEngine interface {
	roles.Idle
	itself() *Engine
}

func (e *Engine) itself() *Engine { return e }

// IdleWith returns the database and the store. See roles.Idle.
func (e *Engine) IdleWith() (with, self any) {
	if s, ok := e.db.(driver.Sharer); ok {
		return s.SharesWith(), e
	}
	return e, e
}

// AreIdle asks one store after the other. See roles.Idle.
func (e *Engine) AreIdle(ctx context.Context, stores []any) ([]bool, error) {
	const operation = "look for rest"
	if err := e.life.Usable(ctx); err != nil {
		return nil, e.explain(ctx, operation, err)
	}
	return storekit.RestOf(ctx, stores, 1, func(ctx context.Context, other onEngine) (bool, error) {
		return valueOf(ctx, other.itself().view, operation, func(ctx context.Context, t *tx) (bool, error) { return t.resting(ctx) })
	})
}

// resting reports whether there is nothing to deliver, and nothing for the janitor. Each search ends at the first
// that it finds.
func (t *tx) resting(ctx context.Context) (bool, error) {
	rows, err := t.Rows(ctx, driver.Search{By: driver.ByOpen, Limit: 1},
		driver.Search{By: driver.ByDone, Until: t.now - driver.Time(t.e.config.Retain.Microseconds()), Limit: 1})
	if err != nil || len(rows) > 0 {
		return false, err
	}
	old, err := t.Old(ctx, joinKind, t.now-driver.Time(t.e.config.RetainJoins.Microseconds()), 1)
	for i := 0; i < len(endingKinds) && err == nil && len(old) == 0; i++ {
		old, err = t.Old(ctx, endingKinds[i], t.now, 1)
	}
	return len(old) == 0, err
}
