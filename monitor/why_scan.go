package monitor

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// scanned is how far a search came.
type scanned struct {
	examined int
	complete bool
}

// pageSize is how many records a page has, which bounds the payloads in memory.
const pageSize = 200

// walk gives each record that matches to visit, until visit returns false, or it has looked at
// limit records or all.
func walk(
	ctx context.Context, store outmill.Inspector, query outmill.ListQuery, limit int, visit func(*outmill.Record) bool,
) (scanned, error) {
	operator, ok := outmill.As[storekit.Operator](store)
	if !ok {
		return scanned{}, storekit.InvalidConfig("Why: the store has no role storekit.Operator, so it finds no neighbours of a record")
	}
	query.Limit = pageSize
	var seen scanned
	for seen.examined < limit {
		page, err := operator.Find(ctx, query)
		if err != nil {
			return seen, err
		}
		for _, r := range page.Records {
			if !visit(r) {
				return seen, nil
			}
		}
		seen.examined += page.Examined
		if page.Done {
			seen.complete = true
			return seen, nil
		}
		query.After = page.Next
	}
	return seen, nil
}

// scan collects what walk visits, without payloads.
func scan(ctx context.Context, store outmill.Inspector, query outmill.ListQuery, limit int) ([]*outmill.Record, scanned, error) {
	var found []*outmill.Record
	seen, err := walk(ctx, store, query, limit, func(r *outmill.Record) bool {
		r.Payload = nil
		found = append(found, r)
		return true
	})
	return found, seen, err
}
