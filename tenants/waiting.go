package tenants

import (
	"context"

	"github.com/outmill/outmill/storekit"
)

var _ storekit.WaitingReader = (*Set)(nil)

// FirstWaiting returns the first records that wait in the member that ctx names: see [WithTenant]. See
// storekit.WaitingReader.
func (s *Set) FirstWaiting(ctx context.Context, group, topic string, limit int) (storekit.Waiting, error) {
	const call = "first waiting"
	if err := storekit.CheckWaiting(limit); err != nil {
		return storekit.Waiting{}, failed(call, err)
	}
	return get(ctx, s, call, waitingOf, func(ctx context.Context, reader storekit.WaitingReader) (storekit.Waiting, error) {
		return reader.FirstWaiting(ctx, group, topic, limit)
	})
}
