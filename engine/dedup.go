package engine

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.DedupKeys = (*Engine)(nil)

// DedupKey returns a dedup key that the store remembers. See storekit.DedupKeys.
func (e *Engine) DedupKey(ctx context.Context, topic, key string) (found storekit.DedupInfo, err error) {
	const operation = "get dedup key"
	if err := storekit.CheckDedupKey(topic, key); err != nil {
		return found, e.explain(ctx, operation, err)
	}
	err = e.view(ctx, operation, func(ctx context.Context, t *tx) error {
		entries, err := t.Entries(ctx, false, driver.Entry{Kind: dedupKind, Key: joined(topic, key)})
		if err != nil {
			return err
		}
		if len(entries) == 0 || entries[0].At <= t.now {
			return outmill.ErrNotFound
		}
		found = storekit.DedupInfo{Topic: topic, Key: key, ExpiresAt: entries[0].At.Of()}
		found.Record, err = outmill.ParseWorkItemID(entries[0].Value)
		return err
	})
	return found, err
}
