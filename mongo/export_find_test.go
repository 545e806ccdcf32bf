package mongo

import (
	"context"

	"github.com/outmill/outmill"
)

// DeleteOf is the part of DeleteWhere that deletes the records that it has found, which may have
// changed since then.
func (s *Store) DeleteOf(ctx context.Context, status outmill.Status, ids ...outmill.WorkItemID) (int, error) {
	return s.delete(ctx, status, ids)
}
