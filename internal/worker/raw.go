package worker

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// claimsOf returns the raw claims of the store if the worker's user wants them, and the store has them. Otherwise it returns
// the others, in the form of raw ones. It asks the queue itself, and none that the queue wraps.
func claimsOf(cfg Config) roles.RawClaims {
	if raw, ok := cfg.Queue.(roles.Raw); ok && cfg.Raw {
		if claims := raw.RawClaims(cfg.Queue); claims != nil {
			return claims
		}
	}
	return func(ctx context.Context, req outmill.ClaimRequest) ([]roles.RawRecord, error) {
		found, err := cfg.Queue.Claim(ctx, req)
		records := make([]roles.RawRecord, len(found))
		for i, r := range found {
			records[i].Record = r
		}
		return records, err
	}
}

// Raw returns the record as the store has claimed it. Nobody may change it.
func (it *Item) Raw() roles.RawRecord { return roles.RawRecord{Record: it.Record, Entries: it.entries} }

// whole returns the record with its metadata: a copy if the item has this as a list, because a publisher may be reading.
func (it *Item) whole() *outmill.Record {
	if len(it.entries) == 0 {
		return it.Record
	}
	rec := *it.Record
	rec.Metadata = it.Raw().MapOf()
	return &rec
}
