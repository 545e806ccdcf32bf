package outmill

import (
	"database/sql/driver"
	"fmt"

	"github.com/google/uuid"
)

// WorkItemID identifies a record in the work queue. It is a UUIDv7, made by
// whoever appends the record and unique across stores. Where a message goes
// to several groups, each group's record has an id of its own; the MessageID
// is what they share.
type WorkItemID uuid.UUID

// NewWorkItemID returns a new UUIDv7. Ids made by one process ascend.
func NewWorkItemID() WorkItemID { return WorkItemID(newUUID()) }

// ParseWorkItemID parses the canonical form of a UUID.
func ParseWorkItemID(s string) (WorkItemID, error) {
	id, err := uuid.Parse(s)
	if err != nil {
		return WorkItemID{}, fmt.Errorf("outmill: work item id %q: %w", s, err)
	}
	return WorkItemID(id), nil
}

// String returns the canonical form of the UUID.
func (id WorkItemID) String() string { return uuid.UUID(id).String() }

// IsZero reports whether the id was never set.
func (id WorkItemID) IsZero() bool { return id == WorkItemID{} }

// MarshalText implements encoding.TextMarshaler.
func (id WorkItemID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *WorkItemID) UnmarshalText(text []byte) error {
	return (*uuid.UUID)(id).UnmarshalText(text)
}

// Value implements driver.Valuer; the id is stored in its canonical form.
func (id WorkItemID) Value() (driver.Value, error) { return id.String(), nil }

// Scan implements sql.Scanner for text and 16-byte columns.
func (id *WorkItemID) Scan(src any) error { return (*uuid.UUID)(id).Scan(src) }

// OwnerToken identifies who claims. Each subscriber and forwarder makes a new
// one for itself, so that a restarted process never takes its own old leases
// for valid ones.
type OwnerToken uuid.UUID

// NewOwnerToken returns a new token.
func NewOwnerToken() OwnerToken { return OwnerToken(newUUID()) }

// String returns the canonical form of the UUID.
func (t OwnerToken) String() string { return uuid.UUID(t).String() }

// IsZero reports whether the token was never set.
func (t OwnerToken) IsZero() bool { return t == OwnerToken{} }

// Value implements driver.Valuer; the token is stored in its canonical form.
func (t OwnerToken) Value() (driver.Value, error) { return t.String(), nil }

// Scan implements sql.Scanner for text and 16-byte columns.
func (t *OwnerToken) Scan(src any) error { return (*uuid.UUID)(t).Scan(src) }

// newUUID falls back to a random UUID when the clock or the random source
// that version 7 wants is unavailable: an id is needed all the same.
func newUUID() uuid.UUID {
	if id, err := uuid.NewV7(); err == nil {
		return id
	}
	return uuid.New()
}
