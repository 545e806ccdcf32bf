package outmill

import (
	"crypto/sha256"
	"database/sql/driver"
	"fmt"

	"github.com/google/uuid"
)

// WorkItemID identifies a record in the work queue. It is a UUIDv7 that Append makes, or
// that the caller of Append chooses, and it is unique across stores. If a message goes to
// several groups, each group's record has its own id, and all share the MessageID. The ids of a message's records share
// their first 8 bytes: see CopyID.
type WorkItemID uuid.UUID

// CopyID returns the id of a group's record of a message whose first record, or row of a log, has the id. The time
// and the count of the id stay, so that the copies of a message stand where it stands in the order of the ids. Of the
// last 8 bytes, all bits but the first two are XORed with those of the SHA-256 of the group's name: CopyID of a
// copy's id and its group is the first id again, and every database can compute it.
func CopyID(id WorkItemID, group string) WorkItemID {
	const random, variantBits = 8, 0xc0
	sum := sha256.Sum256([]byte(group))
	sum[0] &^= variantBits
	for i := random; i < len(id); i++ {
		id[i] ^= sum[i-random]
	}
	return id
}

// NewWorkItemID returns a new UUIDv7. Ids made by one process ascend.
func NewWorkItemID() WorkItemID { return WorkItemID(newUUID()) }

// ParseWorkItemID parses the canonical form of a UUID, in either case.
func ParseWorkItemID(s string) (WorkItemID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != canonicalLength {
		return WorkItemID{}, fmt.Errorf("outmill: work item id %.60q: want a UUID such as %s", s, WorkItemID{})
	}
	return WorkItemID(id), nil
}

// canonicalLength selects the canonical form. uuid.Parse also accepts other forms, and does
// not even read their first and last character.
const canonicalLength = 36

// String returns the canonical form of the UUID.
func (id WorkItemID) String() string { return uuid.UUID(id).String() }

// IsZero reports whether the id was never set.
func (id WorkItemID) IsZero() bool { return id == WorkItemID{} }

// MarshalText implements encoding.TextMarshaler.
func (id WorkItemID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *WorkItemID) UnmarshalText(text []byte) error {
	parsed, err := ParseWorkItemID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Value implements driver.Valuer; the id is stored in its canonical form.
func (id WorkItemID) Value() (driver.Value, error) { return id.String(), nil }

// Scan implements sql.Scanner for text and 16-byte columns; NULL is the zero
// id.
func (id *WorkItemID) Scan(src any) error { return scanUUID((*uuid.UUID)(id), src) }

// OwnerToken identifies the worker that claims. Each subscriber and forwarder makes a new
// one, so that a restarted process cannot settle under the leases of its predecessor.
type OwnerToken uuid.UUID

// NewOwnerToken returns a new token.
func NewOwnerToken() OwnerToken { return OwnerToken(newUUID()) }

// String returns the canonical form of the UUID.
func (t OwnerToken) String() string { return uuid.UUID(t).String() }

// IsZero reports whether the token was never set.
func (t OwnerToken) IsZero() bool { return t == OwnerToken{} }

// Value implements driver.Valuer; the token is stored in its canonical form.
func (t OwnerToken) Value() (driver.Value, error) { return t.String(), nil }

// Scan implements sql.Scanner for text and 16-byte columns; NULL is the zero
// token.
func (t *OwnerToken) Scan(src any) error { return scanUUID((*uuid.UUID)(t), src) }

// scanUUID exists because uuid.UUID.Scan leaves the variable unchanged for NULL, so that it
// would keep the value of the previous row.
func scanUUID(id *uuid.UUID, src any) error {
	*id = uuid.UUID{}
	return id.Scan(src)
}

// newUUID returns a random UUID (version 4) if the clock or the random source of version 7
// fails, because every record needs an id.
func newUUID() uuid.UUID {
	if id, err := uuid.NewV7(); err == nil {
		return id
	}
	return uuid.New()
}

// JoinID identifies a join: a UUIDv7.
type JoinID uuid.UUID

// NewJoinID returns a new UUIDv7. Ids made by one process ascend.
func NewJoinID() JoinID { return JoinID(newUUID()) }

// ParseJoinID parses the canonical form of a UUID, in either case.
func ParseJoinID(s string) (JoinID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != canonicalLength {
		return JoinID{}, fmt.Errorf("outmill: join id %.60q: want a UUID such as %s", s, JoinID{})
	}
	return JoinID(id), nil
}

// String returns the canonical form of the UUID.
func (id JoinID) String() string { return uuid.UUID(id).String() }

// IsZero reports whether the id was never set.
func (id JoinID) IsZero() bool { return id == JoinID{} }

// MarshalText implements encoding.TextMarshaler.
func (id JoinID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *JoinID) UnmarshalText(text []byte) error {
	parsed, err := ParseJoinID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Value implements driver.Valuer; the id is stored in its canonical form.
func (id JoinID) Value() (driver.Value, error) { return id.String(), nil }

// Scan implements sql.Scanner for text and 16-byte columns; NULL is the zero
// id.
func (id *JoinID) Scan(src any) error { return scanUUID((*uuid.UUID)(id), src) }
