package sqlite

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const sqlDedupKey = `SELECT first_id, expires_at FROM {p:dedup} WHERE topic = ?1 AND dedup_key = ?2 AND expires_at > ?3`

var _ storekit.DedupKeys = (*Store)(nil)

// DedupKey returns a dedup key that the store remembers. See storekit.DedupKeys.
func (s *Store) DedupKey(ctx context.Context, topic, key string) (storekit.DedupInfo, error) {
	const operation = "get dedup key"
	if err := storekit.CheckDedupKey(topic, key); err != nil {
		return storekit.DedupInfo{}, s.explain(ctx, operation, err)
	}
	var found storekit.DedupInfo
	err := s.read(ctx, operation, func(ctx context.Context, t *txn) error {
		keys, err := list(ctx, t, func(rows *sql.Rows, k *storekit.DedupInfo) error {
			var id string
			var expires int64
			err := rows.Scan(&id, &expires)
			if err == nil {
				k.Record, err = outmill.ParseWorkItemID(id)
			}
			k.Topic, k.Key, k.ExpiresAt = topic, key, timeOf(expires)
			return err
		}, sqlDedupKey, topic, key, t.now)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			return outmill.ErrNotFound
		}
		found = keys[0]
		return nil
	})
	return found, err
}
