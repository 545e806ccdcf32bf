package engine

import (
	"context"
	"time"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ roles.Idle = (*Engine)(nil)

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

// AreIdle asks those stores whose last answer does not stand. See roles.Idle.
func (e *Engine) AreIdle(ctx context.Context, stores []any) ([]bool, error) {
	const operation = "look for rest"
	if err := e.life.Usable(ctx); err != nil {
		return nil, e.explain(ctx, operation, err)
	}
	if rester, ok := e.db.(driver.Rester); ok {
		resting, err := restingOf(ctx, rester, stores)
		return resting, e.explain(ctx, operation, err)
	}
	return restOf(ctx, stores, func(e *Engine) (bool, error) { return e.searchedResting(ctx) })
}

// restOf asks the stores one after the other. It returns an error of the caller's context or of a store of another kind. A store for
// which ask fails is not at rest.
func restOf(ctx context.Context, stores []any, ask func(e *Engine) (bool, error)) ([]bool, error) {
	list := make([]*Engine, len(stores))
	for i, other := range stores {
		store, ok := other.(onEngine)
		if !ok {
			return nil, storekit.InvalidConfig("AreIdle got a %T: want what IdleWith of such stores returns", other)
		}
		list[i] = store.itself()
	}
	resting := make([]bool, len(list))
	for i, e := range list {
		if ctx.Err() != nil {
			break
		}
		rests, err := ask(e)
		resting[i] = rests && err == nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return resting, nil
}

// searchedResting asks by searches.
func (e *Engine) searchedResting(ctx context.Context) (bool, error) {
	return valueOf(ctx, e.view, "look for rest", func(ctx context.Context, t *tx) (bool, error) { return t.resting(ctx) })
}

// rest is what the engine asks of its database.
func (e *Engine) rest() driver.Rest {
	return driver.Rest{DB: e.db, Processed: e.config.Retain, Ends: []driver.Ending{
		{Kind: joinKind, Kept: e.config.RetainJoins},
		{Kind: dedupKind}, {Kind: registrationKind}, {Kind: endedKind}, {Kind: noteKind}, {Kind: sagaKind},
		{Kind: auditKind}, {Kind: commandKind},
	}}
}

// resting reports whether there is nothing to deliver, and nothing for the janitor. Each search ends at the first
// that it finds.
func (t *tx) resting(ctx context.Context) (bool, error) {
	asked := t.e.rest()
	behind := func(kept time.Duration) driver.Time { return t.now - driver.Time(kept.Microseconds()) }
	rows, err := t.Rows(ctx, driver.Search{By: driver.ByOpen, Limit: 1},
		driver.Search{By: driver.ByDone, Until: behind(asked.Processed), Limit: 1})
	if err != nil || len(rows) > 0 {
		return false, err
	}
	for _, end := range asked.Ends {
		if old, err := t.Old(ctx, end.Kind, behind(end.Kept), 1); err != nil || len(old) > 0 {
			return false, err
		}
	}
	return true, nil
}
