package sqlite

import (
	"context"

	"github.com/outmill/outmill"
)

// DeleteOf deletes records like DeleteWhere after its search. They may have changed since the
// search.
func (s *Store) DeleteOf(ctx context.Context, status outmill.Status, ids ...outmill.WorkItemID) (int, error) {
	return s.delete(ctx, status, ids)
}
