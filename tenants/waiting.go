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
	var found storekit.Waiting
	err := in(ctx, s, call, "storekit.WaitingReader", func(ctx context.Context, _ *member, reader storekit.WaitingReader) (err error) {
		found, err = reader.FirstWaiting(ctx, group, topic, limit)
		return err
	})
	return found, err
}
