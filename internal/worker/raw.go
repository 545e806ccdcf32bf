package worker

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// claimsOf returns the raw claims of the store if the worker's user wants them, and the store has them.
func claimsOf(cfg Config) roles.RawClaims {
	if cfg.Raw {
		return roles.RawClaimsOf(cfg.Queue)
	}
	return roles.ClaimsOf(cfg.Queue)
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
