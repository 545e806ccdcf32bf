package mongo

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.DedupKeys = (*Store)(nil)

// DedupKey returns a dedup key that the store remembers. See storekit.DedupKeys.
func (s *Store) DedupKey(ctx context.Context, topic, key string) (storekit.DedupInfo, error) {
	const operation = "get dedup key"
	if err := storekit.CheckDedupKey(topic, key); err != nil {
		return storekit.DedupInfo{}, s.explain(ctx, operation, err)
	}
	var found []dedupKey
	var now time.Time
	err := s.do(ctx, operation, func(ctx context.Context) (err error) {
		if now, err = s.now(ctx); err != nil {
			return err
		}
		found, err = findAll[dedupKey](ctx, s.dedup, where("_id", storekit.DedupKey{Topic: topic, Key: key}))
		return err
	})
	if err == nil && (len(found) == 0 || !found[0].ExpiresAt.After(now)) {
		err = s.explain(ctx, operation, outmill.ErrNotFound)
	}
	if err != nil {
		return storekit.DedupInfo{}, err
	}
	return storekit.DedupInfo{Topic: topic, Key: key, Record: outmill.WorkItemID(found[0].First), ExpiresAt: found[0].ExpiresAt.UTC()}, nil
}
