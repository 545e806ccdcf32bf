package storekit

import (
	"context"
	"time"

	"github.com/outmill/outmill"
)

// DedupKeys is a role of a store that remembers dedup keys. It says which record took a key, for
// people who ask why a message did not arrive. outmill.As finds it.
type DedupKeys interface {
	// DedupKey returns the topic's dedup key, of which the store skips further messages. It
	// returns outmill.ErrNotFound if the store does not remember the key: no message had it, or
	// its window has ended. The record may be gone already.
	DedupKey(ctx context.Context, topic, key string) (DedupInfo, error)
}

// DedupInfo describes a dedup key that a store remembers.
type DedupInfo struct {
	Topic, Key string
	// Record is the id that Append gave the first record with the key.
	Record outmill.WorkItemID
	// ExpiresAt is the end of the dedup window, by the database's clock.
	ExpiresAt time.Time
	// Store names the store if it is a member of a set of tenants.
	Store string
}

// CheckDedupKey validates the arguments of DedupKeys.DedupKey. Stores call it.
func CheckDedupKey(topic, key string) error {
	if err := CheckTopic(topic); err != nil {
		return err
	}
	reason := checkName(key)
	if key == "" {
		reason = "is empty: want the key that the publisher has set"
	}
	if reason != "" {
		return &outmill.InvalidRecordError{Index: -1, Field: "dedup key", Reason: reason}
	}
	return nil
}
