package engine

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.DedupKeys = (*Engine)(nil)

// DedupKey returns a dedup key that the store remembers. See storekit.DedupKeys.
func (e *Engine) DedupKey(ctx context.Context, topic, key string) (storekit.DedupInfo, error) {
	view := e.checked(storekit.CheckDedupKey(topic, key), e.view)
	return valueOf(ctx, view, "get dedup key", func(ctx context.Context, t *tx) (found storekit.DedupInfo, err error) {
		entry, err := t.entry(ctx, false, dedupKind, joined(topic, key))
		switch {
		case err != nil:
			return found, err
		case entry == nil || entry.At <= t.now:
			return found, outmill.ErrNotFound
		}
		found = storekit.DedupInfo{Topic: topic, Key: key, ExpiresAt: entry.At.Of()}
		found.Record, err = outmill.ParseWorkItemID(entry.Value)
		return found, err
	})
}
