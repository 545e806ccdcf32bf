package sqlserver

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const sqlDedupKey = `SELECT FirstId, ExpiresAt FROM [dbo].[OutboxDedup] WITH (READCOMMITTEDLOCK)
WHERE Topic = CAST(@topic AS NVARCHAR(255)) AND DedupKey = CAST(@key AS NVARCHAR(255)) AND ExpiresAt > SYSUTCDATETIME()`

var _ storekit.DedupKeys = (*Store)(nil)

// DedupKey returns a dedup key that the store remembers. See storekit.DedupKeys.
func (s *Store) DedupKey(ctx context.Context, topic, key string) (storekit.DedupInfo, error) {
	const operation = "get dedup key"
	if err := storekit.CheckDedupKey(topic, key); err != nil {
		return storekit.DedupInfo{}, s.explain(ctx, operation, err)
	}
	var found []storekit.DedupInfo
	err := s.run(ctx, operation, call{
		template: sqlDedupKey, args: []any{named("topic", s.text(topic)), named("key", s.text(key))},
		reset: func() { found = nil },
		sets: []reader{func(scan func(...any) error) error {
			k := storekit.DedupInfo{Topic: topic, Key: key}
			var id string
			err := scan(&id, &k.ExpiresAt)
			if err == nil {
				k.Record, err = outmill.ParseWorkItemID(id)
			}
			k.ExpiresAt = k.ExpiresAt.UTC()
			found = append(found, k)
			return err
		}},
	})
	if err == nil && len(found) == 0 {
		err = s.explain(ctx, operation, outmill.ErrNotFound)
	}
	if err != nil {
		return storekit.DedupInfo{}, err
	}
	return found[0], nil
}
