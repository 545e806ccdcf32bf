package janitor

import "github.com/ThreeDotsLabs/watermill"

// Report counts what a round did. A janitor that finds another one at work counts only its own
// part.
type Report struct {
	// Reaped counts records that are due again because their lease had ended.
	Reaped int
	// Expired counts records that are dead because their expiry had passed.
	Expired int
	// Registrations counts registrations that ended because nobody renewed them, and
	// Unread their undelivered records that were deleted.
	Registrations, Unread int
	// Processed counts processed records that were deleted after the store's Retain.
	Processed int
	// Joins counts joins that were deleted some time after their end.
	Joins int
	// Notes counts deleted notes of an inbox.
	Notes int
	// Sagas counts deleted finished sagas.
	Sagas int
	// Audit counts deleted entries of the audit.
	Audit int
	// DedupKeys counts deleted dedup keys.
	DedupKeys int
}

// Total returns the sum of all counts.
func (r Report) Total() int {
	return r.Reaped + r.Expired + r.Registrations + r.Unread + r.Processed + r.Joins + r.Notes + r.Sagas + r.Audit + r.DedupKeys
}

// fields names the counts that are not 0.
func (r Report) fields() watermill.LogFields {
	fields := watermill.LogFields{}
	for name, n := range map[string]int{
		"reaped": r.Reaped, "expired": r.Expired, "registrations": r.Registrations, "unread": r.Unread, "processed": r.Processed,
		"joins": r.Joins, "notes": r.Notes, "sagas": r.Sagas, "audit": r.Audit, "dedup_keys": r.DedupKeys,
	} {
		if n > 0 {
			fields[name] = n
		}
	}
	return fields
}
