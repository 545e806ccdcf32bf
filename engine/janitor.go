package engine

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
)

// sweepRows changes up to limit of the rows that a search finds, and returns how many it has changed.
func (e *Engine) sweepRows(ctx context.Context, operation string, limit int, search func(t *tx) driver.Search,
	change func(t *tx, r driver.Row)) (int, error) {
	return e.count(ctx, operation, limit, func(ctx context.Context, t *tx) (int, error) {
		changed, _, err := t.changeAll(ctx, limit, t.searched(search(t)), func(r driver.Row) { change(t, r) })
		return changed, err
	})
}

// ExpireDue makes expired records dead. See outmill.Janitor.
func (e *Engine) ExpireDue(ctx context.Context, limit int) (int, error) {
	search := func(*tx) driver.Search { return driver.Search{By: driver.ByExpiry, Free: true} }
	return e.sweepRows(ctx, "expire", limit, search, func(t *tx, r driver.Row) { t.change(r, expire) })
}

// DeleteProcessed deletes processed records. See outmill.Janitor.
func (e *Engine) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	search := func(t *tx) driver.Search {
		return driver.Search{By: driver.ByDone, Until: t.now - driver.Time(e.config.Retain.Microseconds()), Free: true}
	}
	return e.sweepRows(ctx, "delete processed", limit, search, (*tx).remove)
}

// DeleteDedupKeys deletes dedup keys whose window has ended. See outmill.Janitor.
func (e *Engine) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return e.count(ctx, "delete dedup keys", limit, func(ctx context.Context, t *tx) (int, error) {
		return t.deleteOld(ctx, dedupKind, limit)
	})
}

// deleteOld deletes entries of a kind whose At has come.
func (t *tx) deleteOld(ctx context.Context, kind string, limit int) (int, error) {
	old, err := t.Old(ctx, kind, t.now, limit)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	return len(old), t.Delete(ctx, old...)
}

// Maintain has the driver do a part of its upkeep, if it has any. See outmill.Janitor.
func (e *Engine) Maintain(ctx context.Context) (more bool, err error) {
	const operation = "maintain"
	maintainer, ok := e.db.(driver.Maintainer)
	if !ok {
		return false, e.view(ctx, operation, func(context.Context, *tx) error { return nil })
	}
	if err := e.ready(ctx); err != nil {
		return false, e.explain(ctx, operation, err)
	}
	more, err = maintainer.Maintain(ctx)
	return more, e.explain(ctx, operation, err)
}
