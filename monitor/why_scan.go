package monitor

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
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
// limit records or all. If some of several stores fail, it visits the records of the others and returns
// the last error.
func walk(
	ctx context.Context, store outmill.Inspector, query outmill.ListQuery, limit int, visit func(*outmill.Record) bool,
) (scanned, error) {
	operator, ok := outmill.As[roles.Repairs](store)
	if !ok {
		return scanned{}, storekit.InvalidConfig("Why: the store has no role roles.Repairs, so it finds no neighbours of a record")
	}
	query.Limit = pageSize
	var seen scanned
	var failed error
	for seen.examined < limit {
		page, err := operator.Find(ctx, query)
		if storekit.NoneAnswered(err) {
			return seen, err
		}
		if err != nil {
			failed = err
		}
		for _, r := range page.Records {
			if !visit(r) {
				return seen, failed
			}
		}
		seen.examined += page.Examined
		if page.Done {
			seen.complete = true
			return seen, failed
		}
		query.After = page.Next
	}
	return seen, failed
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
