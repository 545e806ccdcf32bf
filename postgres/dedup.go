package postgres

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const sqlDedupKey = `SELECT first_id, expires_at FROM {p:dedup}
WHERE topic = $1::text AND dedup_key = $2::text AND expires_at > statement_timestamp()`

var _ storekit.DedupKeys = (*Store)(nil)

// DedupKey returns a dedup key that the store remembers. See storekit.DedupKeys.
func (s *Store) DedupKey(ctx context.Context, topic, key string) (storekit.DedupInfo, error) {
	const operation = "get dedup key"
	if err := storekit.CheckDedupKey(topic, key); err != nil {
		return storekit.DedupInfo{}, s.explain(ctx, operation, err)
	}
	var found []storekit.DedupInfo
	err := s.writeAll(ctx, operation, step{template: sqlDedupKey, args: []any{topic, key}, row: func(scan func(...any) error) error {
		k := storekit.DedupInfo{Topic: topic, Key: key}
		err := scan(&k.Record, &k.ExpiresAt)
		k.ExpiresAt = k.ExpiresAt.UTC()
		found = append(found, k)
		return err
	}})
	if err == nil && len(found) == 0 {
		err = s.explain(ctx, operation, outmill.ErrNotFound)
	}
	if err != nil {
		return storekit.DedupInfo{}, err
	}
	return found[0], nil
}
