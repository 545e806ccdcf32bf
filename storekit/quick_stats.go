package storekit

import (
	"context"

	"github.com/outmill/outmill"
)

const (
	quickLimit = 10_000
	// quickTotal is about the number of records that QuickStats reads for each status.
	quickTotal = 20_000
)

// QuickStats counts as [outmill.Inspector].Stats does, in a time that a person waits for: up to
// 10,000 records per count if there are at most two pairs of group and topic, and fewer if there
// are more, at least 100. It returns the limit: a count that equals it means "this many or more".
// It asks the store twice. Errors are those of Stats; where Stats returns what it has with an error,
// so does QuickStats.
func QuickStats(ctx context.Context, from outmill.Inspector) (stats []outmill.TopicStats, limit int, err error) {
	pairs, err := from.Stats(ctx, 1)
	if err != nil && len(pairs) == 0 {
		return nil, 0, err
	}
	limit = min(quickLimit, max(quickTotal/max(len(pairs), 1), 100))
	stats, err = from.Stats(ctx, limit)
	return stats, limit, err
}
