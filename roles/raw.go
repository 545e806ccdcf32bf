package roles

import (
	"context"

	"github.com/outmill/outmill"
)

// Raw is the role of a store whose claims can leave the metadata of records as a list. A forwarder to Kafka without
// hooks makes the headers straight from the list, which saves a map, a message and their texts for each record.
type Raw interface {
	// RawClaims returns the raw claims of a queue. It returns nil unless the queue is this store itself: a type that embeds
	// the store has the method too, and its own Claim must not be passed by. For the same reason, callers ask the queue that
	// they have, and not with outmill.As, the store behind it.
	RawClaims(queue outmill.Queue) RawClaims
}

// RawClaims is Claim of outmill.Queue, and returns the same records, but for their metadata.
type RawClaims func(ctx context.Context, req outmill.ClaimRequest) ([]RawRecord, error)

// RawRecord is a claimed record, whose metadata is in Entries, or, as in other records, in Metadata: never in both. The
// caller owns the record and the list. Their texts may share memory with those of other records of the claim, which stays
// as long as one of them is in use.
type RawRecord struct {
	*outmill.Record
	Entries []MetadataEntry
}

// MetadataEntry is an entry of a record's metadata. A list has each name once.
type MetadataEntry struct{ Name, Value string }

// Size is that of the record with all of its metadata. See outmill.Record.Size.
func (r RawRecord) Size() int {
	n := r.Record.Size()
	for _, e := range r.Entries {
		n += len(e.Name) + len(e.Value)
	}
	return n
}

// MapOf returns the metadata as a new map; nil is none.
func (r RawRecord) MapOf() map[string]string {
	n := len(r.Entries) + len(r.Metadata)
	if n == 0 {
		return nil
	}
	metadata := make(map[string]string, n)
	for _, e := range r.Entries {
		metadata[e.Name] = e.Value
	}
	for name, value := range r.Metadata {
		metadata[name] = value
	}
	return metadata
}

// Whole returns the record with its metadata as a map. It sets that of the record itself.
func (r RawRecord) Whole() *outmill.Record {
	if len(r.Entries) > 0 {
		r.Metadata = r.MapOf()
	}
	return r.Record
}

// RawClaimsOf returns the raw claims of a queue, and those that Claim makes of it if it has none. It asks the queue itself, and none that
// it wraps.
func RawClaimsOf(queue outmill.Queue) RawClaims {
	if raw, is := queue.(Raw); is {
		if claims := raw.RawClaims(queue); claims != nil {
			return claims
		}
	}
	return ClaimsOf(queue)
}

// ClaimsOf returns the claims of a queue in the form of raw ones.
func ClaimsOf(queue outmill.Queue) RawClaims {
	return func(ctx context.Context, req outmill.ClaimRequest) ([]RawRecord, error) {
		found, err := queue.Claim(ctx, req)
		records := make([]RawRecord, len(found))
		for i, r := range found {
			records[i].Record = r
		}
		return records, err
	}
}
