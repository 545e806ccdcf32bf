package memstore

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.DedupKeys = (*Store)(nil)

// DedupKey returns a dedup key that the store remembers. See storekit.DedupKeys.
func (s *Store) DedupKey(ctx context.Context, topic, key string) (found storekit.DedupInfo, err error) {
	const operation = "get dedup key"
	if err := storekit.CheckDedupKey(topic, key); err != nil {
		return found, failed(operation, err)
	}
	err = s.do(ctx, operation, func(d *Database, now time.Time) error {
		seen, known := d.keys[storekit.DedupKey{Topic: topic, Key: key}]
		if !known || seen.by != nil || !seen.until.After(now) {
			return outmill.ErrNotFound
		}
		found = storekit.DedupInfo{Topic: topic, Key: key, Record: seen.first, ExpiresAt: stored(seen.until)}
		return nil
	})
	return found, err
}
