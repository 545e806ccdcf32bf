package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// stagesOf returns the stages of a status.
func stagesOf(status outmill.Status) []int {
	switch status {
	case outmill.StatusPending:
		return []int{storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageDelayed, storekit.StageExpired,
			storekit.StageAside, stageInTurn}
	case outmill.StatusLeased:
		return []int{storekit.StageLeased}
	case outmill.StatusProcessed:
		return []int{storekit.StageProcessed}
	case outmill.StatusDead:
		return []int{storekit.StageDead}
	}
	return allStages
}

// finder gives the store List and the methods of roles.Repairs by a filter.
type finder = storekit.Finder

// finding implements what the finder needs of the store.
type finding struct{ *Store }

// looked has the fields of a record that a search reads.
type looked struct {
	ID      uuid `bson:"_id"`
	Matches bool `bson:"m"`
}

// Search reads records. It reads all of them by id, or, for a rare status, those of each topic of
// each group.
func (f finding) Search(ctx context.Context, operation string, query outmill.ListQuery) (found storekit.Searched, err error) {
	// MongoDB stores milliseconds.
	query.CreatedAfter, query.CreatedBefore = ceilTime(query.CreatedAfter), ceilTime(query.CreatedBefore)
	err = f.do(ctx, operation, func(ctx context.Context) (err error) {
		if !storekit.ByStatus(query.Status) {
			found, err = storekit.Search(query, 1, func(ranges []storekit.SearchRange, each int) ([]storekit.Looked, error) {
				return f.look(ctx, query, behind(ranges[0]), ranges[0], each)
			})
			return err
		}
		stage := stagesOf(query.Status)[0]
		lines, err := f.linesOf(ctx, stage)
		if err != nil {
			return err
		}
		var in []line
		for _, l := range lines {
			if storekit.InRange(query, string(l.Group), l.Topic) {
				in = append(in, l)
			}
		}
		found, err = storekit.Search(query, len(in), func(ranges []storekit.SearchRange, each int) (all []storekit.Looked, err error) {
			for _, r := range ranges {
				some, err := f.look(ctx, query, in[r.Nth].in(stage, append(settledToo(stage), behind(r)...)...), r, each)
				if err != nil {
					return nil, err
				}
				all = append(all, some...)
			}
			return all, nil
		})
		return err
	})
	return found, err
}

func behind(r storekit.SearchRange) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: uuid(r.After)}}}}
}

// look asks the server which of the records match. The match is not part of the filter, because
// the server must read at most each records.
func (f finding) look(
	ctx context.Context, query outmill.ListQuery, filter bson.D, in storekit.SearchRange, each int,
) ([]storekit.Looked, error) {
	opts := first(each, ascending("_id")).SetProjection(bson.D{{Key: "m", Value: matching(query)}})
	found, err := findAll[looked](ctx, f.records, filter, opts)
	list := make([]storekit.Looked, len(found))
	for i, l := range found {
		list[i] = storekit.Looked{Nth: in.Nth, ID: outmill.WorkItemID(l.ID), Matches: l.Matches}
	}
	return list, err
}

// matching is an expression that is true if a record matches the query.
func matching(query outmill.ListQuery) bson.D {
	all := bson.A{true}
	for _, f := range []struct{ field, value string }{
		{"grp", query.Group}, {"topic", query.Topic}, {"status", string(query.Status)}, {"key", query.Key},
		{"message_id", query.MessageID}, {"correlation_id", query.CorrelationID}, {"tenant_id", query.TenantID},
	} {
		if f.value != "" {
			all = append(all, bson.D{{Key: "$eq", Value: bson.A{"$" + f.field, literal(f.value)}}})
		}
	}
	if query.ErrorText != "" {
		said := bson.D{{Key: "$ifNull", Value: bson.A{"$last_error", ""}}}
		all = append(all, bson.D{{Key: "$gte", Value: bson.A{bson.D{{Key: "$indexOfBytes", Value: bson.A{said, literal(query.ErrorText)}}}, 0}}})
	}
	for _, f := range []struct {
		names []string
		value string
	}{{storekit.ContractNames, query.Contract}, {storekit.ContractVersionNames, storekit.VersionText(query.ContractVersion)}} {
		if f.value != "" {
			all = append(all, bson.D{{Key: "$eq", Value: bson.A{metadataOf(f.names), literal(f.value)}}})
		}
	}
	if !query.CreatedAfter.IsZero() {
		all = append(all, bson.D{{Key: "$gte", Value: bson.A{"$created_at", query.CreatedAfter}}})
	}
	if !query.CreatedBefore.IsZero() {
		all = append(all, bson.D{{Key: "$lt", Value: bson.A{"$created_at", query.CreatedBefore}}})
	}
	return bson.D{{Key: "$and", Value: all}}
}

// metadataOf is the first of the metadata with these names that a record has.
func metadataOf(names []string) any {
	of := any(nil)
	for _, name := range slices.Backward(names) {
		of = bson.D{{Key: "$ifNull", Value: bson.A{"$metadata." + name, of}}}
	}
	return of
}

// Records returns the records with these ids.
func (f finding) Records(ctx context.Context, operation string, ids []outmill.WorkItemID) (records []*outmill.Record, err error) {
	err = f.do(ctx, operation, func(ctx context.Context) (err error) {
		records, err = f.find(ctx, in("_id", uuids(ids)), len(ids))
		return err
	})
	return records, err
}

// Delete deletes the records that have the status.
func (f finding) Delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	return f.delete(ctx, status, ids)
}

// Explain adds the name of the operation to an error.
func (f finding) Explain(ctx context.Context, operation string, err error) error {
	return f.explain(ctx, operation, err)
}

// settledToo names the field of the index that has settled records in the order of their ids.
func settledToo(stage int) []bson.E {
	if stage < storekit.StageProcessed {
		return nil
	}
	return []bson.E{{Key: "settled", Value: true}}
}

// readersOf returns the groups that may have records, followed by the empty group.
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

// linesOf returns the groups and topics that have records in these stages, those of the empty
// group last.
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
