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
