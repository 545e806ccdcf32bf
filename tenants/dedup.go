package tenants

import (
	"context"

	"github.com/outmill/outmill/storekit"
)

var _ storekit.DedupKeys = (*Set)(nil)

// DedupKey returns a dedup key of the member that ctx names: see [WithTenant]. Members have keys
// of their own. See storekit.DedupKeys.
func (s *Set) DedupKey(ctx context.Context, topic, key string) (storekit.DedupInfo, error) {
	const call = "get dedup key"
	if err := storekit.CheckDedupKey(topic, key); err != nil {
		return storekit.DedupInfo{}, failed(call, err)
	}
	var found storekit.DedupInfo
	err := inOne(ctx, s, call, keysOf, func(ctx context.Context, m *member, keys storekit.DedupKeys) (err error) {
		found, err = keys.DedupKey(ctx, topic, key)
		found.Store = m.name()
		return err
	})
	return found, err
}
