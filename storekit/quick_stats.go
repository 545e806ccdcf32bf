package storekit

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
)

const (
	quickLimit = 10_000
	quickLeast = 200
	// quickTotal is about the number of records that QuickStats reads for each status.
	quickTotal = 20_000
)

// QuickStats counts as [outmill.Inspector].Stats does, in a time that a person waits for: up to
// 10,000 records per count if there are at most two pairs of group and topic, and fewer if there
// are more, at least 200. It returns the limit: a count that equals it means "this many or more".
// It asks the store once, and once more if more than 200 records are to be counted. Errors are those of Stats; where
// Stats returns what it has with an error, so does QuickStats.
func QuickStats(ctx context.Context, from outmill.Inspector) (stats []outmill.TopicStats, limit int, err error) {
	stats, err = from.Stats(ctx, quickLeast)
	if len(stats) == 0 && NoneAnswered(err) {
		return nil, 0, err
	}
	limit = min(quickLimit, max(quickTotal/max(len(stats), 1), quickLeast))
	if limit == quickLeast || !slices.ContainsFunc(stats, isCut) {
		return stats, limit, err
	}
	stats, err = from.Stats(ctx, limit)
	return stats, limit, err
}

// isCut reports whether a count has ended at quickLeast.
func isCut(of outmill.TopicStats) bool {
	return max(of.Pending, of.Delayed, of.Leased, of.Processed, of.Dead) >= quickLeast
}
