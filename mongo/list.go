package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// stagesOf are the stages of a status.
func stagesOf(status outmill.Status) []int {
	switch status {
	case outmill.StatusPending:
		return []int{storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageDelayed, storekit.StageExpired}
	case outmill.StatusLeased:
		return []int{storekit.StageLeased}
	case outmill.StatusProcessed:
		return []int{storekit.StageProcessed}
	case outmill.StatusDead:
		return []int{storekit.StageDead}
	}
	return allStages
}

// List returns records in the order of their ids. See outmill.Inspector.
func (s *Store) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	const operation = "list"
	query, err := storekit.CheckList(query)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	var records []*outmill.Record
	err = s.do(ctx, operation, func(ctx context.Context) (err error) {
		filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: uuid(query.After)}}}}
		if query.Group != "" {
			filter = append(filter, bson.E{Key: "grp", Value: query.Group})
		}
		if query.Topic != "" {
			filter = append(filter, bson.E{Key: "topic", Value: query.Topic})
		}
		if query.Status != "" {
			filter = append(filter, bson.E{Key: "status", Value: query.Status})
		}
		if few := stagesOf(query.Status); len(few) == 1 {
			records, err = s.listFew(ctx, filter, query, few[0])
			return err
		}
		records, err = s.find(ctx, filter, query.Limit)
		return err
	})
	return records, err
}

// listFew finds what few records are line by line: through the ids it would
// look at all records.
func (s *Store) listFew(ctx context.Context, filter bson.D, query outmill.ListQuery, stage int) ([]*outmill.Record, error) {
	lines, err := s.linesOf(ctx, stage)
	if err != nil {
		return nil, err
	}
	limit := query.Limit
	var all []*outmill.Record
	for _, l := range lines {
		if query.Topic != "" && query.Topic != l.Topic || query.Group != "" && l.Group != reader(query.Group) {
			continue
		}
		found, err := s.find(ctx, l.in(stage, append(settledToo(stage), filter[0])...), limit)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b *outmill.Record) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return all[:min(len(all), limit)], nil
}

// settledToo names the field by which an index has them in the order of ids.
func settledToo(stage int) []bson.E {
	if stage < storekit.StageProcessed {
		return nil
	}
	return []bson.E{{Key: "settled", Value: true}}
}

// readersOf returns the groups that may have records, and none last.
func (s *Store) readersOf(ctx context.Context) ([]reader, error) {
	found, err := s.loadState(ctx)
	if err != nil {
		return nil, err
	}
	ended, err := s.ended(ctx)
	if err != nil {
		return nil, err
	}
	var readers []reader
	for _, info := range found.table().Infos(nil, ended) {
		readers = append(readers, reader(info.Group))
	}
	return append(readers, reader("")), nil
}

// linesOf returns the groups and topics that have records in these stages,
// those of no group last.
func (s *Store) linesOf(ctx context.Context, stages ...int) ([]line, error) {
	readers, err := s.readersOf(ctx)
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, r := range readers {
		topics, err := s.topicsOf(ctx, r, stages...)
		if err != nil {
			return nil, err
		}
		for _, topic := range topics {
			lines = append(lines, line{r, topic})
		}
	}
	return lines, nil
}
