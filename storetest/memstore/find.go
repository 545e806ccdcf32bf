package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// finding implements the methods that storekit.Finder needs from the store.
type finding struct{ *Store }

// Search reads records in the order of their ids.
func (f finding) Search(ctx context.Context, operation string, query outmill.ListQuery) (found storekit.Searched, err error) {
	err = f.do(ctx, operation, func(d *Database, _ time.Time) error {
		var rows []*row
		d.each(func(r *row) { rows = append(rows, r) })
		slices.SortFunc(rows, func(a, b *row) int { return compareIDs(a.ID, b.ID) })
		found, err = storekit.Search(query, 1, func(ranges []storekit.SearchRange, each int) (list []storekit.Looked, err error) {
			for _, r := range rows {
				if compareIDs(r.ID, ranges[0].After) > 0 && len(list) < each {
					list = append(list, storekit.Looked{ID: r.ID, Matches: storekit.Matches(query, &r.Record)})
				}
			}
			return list, nil
		})
		return err
	})
	return found, err
}

// Records returns the records with these ids.
func (f finding) Records(ctx context.Context, operation string, ids []outmill.WorkItemID) (records []*outmill.Record, err error) {
	err = f.do(ctx, operation, func(d *Database, now time.Time) error {
		for _, id := range ids {
			if r := d.byID[id]; r != nil {
				records = append(records, withContentOf(ctx, d.record(r, now)))
			}
		}
		return nil
	})
	return records, err
}

// withContentOf leaves out of a copy of a record what a list does not ask for.
func withContentOf(ctx context.Context, r *outmill.Record) *outmill.Record {
	payload, metadata := storekit.ContentOf(ctx)
	if !payload {
		r.Payload = nil
	}
	if !metadata {
		r.Metadata = nil
	}
	return r
}

// Delete deletes the records with this status.
func (f finding) Delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	return f.delete(ctx, status, ids)
}

// Explain wraps the error with the name of the operation.
func (f finding) Explain(_ context.Context, operation string, err error) error {
	return failed(operation, err)
}

func (s *Store) delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (deleted int, err error) {
	err = s.do(ctx, "delete", func(d *Database, now time.Time) error {
		for _, id := range ids {
			if r := d.byID[id]; r != nil && (status == "" || r.Status == status) {
				d.remove(r)
				deleted++
			}
		}
		d.audit(storekit.NewAuditEntry(ctx, storekit.AuditDelete, ids...), deleted, now)
		return nil
	})
	return deleted, err
}
