package roles

import (
	"encoding/json"
	"time"

	"github.com/outmill/outmill"
)

// AuditQuery says which entries Audited returns.
type AuditQuery struct {
	// After continues behind a page; "" begins with the newest entry.
	After string
	// Limit is the largest number of entries; 0 is 100.
	Limit int
}

// AuditPage is what one call of Audited returns.
type AuditPage struct {
	// Entries are in the order of their numbers, the largest first; those of several stores
	// (package tenants) in the order of their times.
	Entries []AuditEntry
	// Next is what to set AuditQuery.After to for the next call.
	Next string
	// Done says that no older entry is left.
	Done bool
}

// AuditAction is what an operator did.
type AuditAction string

// The actions of an audit.
const (
	AuditRequeue AuditAction = "requeue"
	AuditDelete  AuditAction = "delete"
	AuditEdit    AuditAction = "edit"
	AuditSkip    AuditAction = "skip"
	// AuditEditRequeue is an edit and a requeue by one command. The count is that of the requeue.
	AuditEditRequeue AuditAction = "edit, requeue"
)

// AuditEntry says who changed what, and when.
type AuditEntry struct {
	// Number increases with each entry of the store. Of two calls at the same time, the one
	// with the smaller number may commit last.
	Number int64
	// Store names the store of the entry, where the reader's store is made of several
	// (package tenants); "" elsewhere.
	Store string
	// At is the time of the first change, by the database's clock.
	At time.Time
	// Actor is who made the call, from WithActor; "" if the caller named nobody.
	Actor string
	// Action is what the calls did.
	Action AuditAction
	// Count is how many records changed; while the command still works, until now.
	Count int
	AuditDetails

	// Command is for stores, and Audited leaves it empty: a UUID, which is the same in all
	// transactions that share the entry. See NewAuditEntry.
	Command string
}

// AuditDetails are the parts of an entry that a store keeps as one JSON text.
type AuditDetails struct {
	// Filter has the fields of the query of a call by filter, each with its value; nil for a
	// call by id. Its names are group, topic, status, key, message_id, correlation_id,
	// tenant_id, error_text, contract, contract_version, created_after and created_before.
	Filter map[string]string `json:"filter,omitempty"`
	// IDs are the records that the calls named, or that calls by filter found, the first 100
	// of them. Those that were not to be changed are among them, and the other records of a
	// parked key, which change too, are not.
	IDs []outmill.WorkItemID `json:"ids,omitempty"`
	// Before and After describe the records before the change and after it.
	Before AuditState `json:"before,omitzero"`
	After  AuditState `json:"after,omitzero"`
	// Metadata are the names of the metadata that an edit added, changed or removed, sorted;
	// the first 100 of them.
	Metadata []string `json:"metadata,omitempty"`
}

// AuditState describes records before a change, or after it.
type AuditState struct {
	// Status is their status, or "deleted". It is "" where the records had several.
	Status string `json:"status,omitempty"`
	// Fingerprint is that of the record, for Edit and for the record that Skip removes. See
	// storekit.FingerprintOf.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Size is the size of the record's payload in bytes, where there is a fingerprint.
	Size int `json:"size,omitempty"`
}

// AuditDeleted is the AuditState.Status of records that are gone.
const AuditDeleted = "deleted"

// Details returns the AuditDetails as JSON.
func (e AuditEntry) Details() string {
	// Maps, lists and texts can always be encoded.
	text, _ := json.Marshal(e.AuditDetails)
	return string(text)
}

// SetDetails reads what Details wrote.
func (e *AuditEntry) SetDetails(text string) error {
	return json.Unmarshal([]byte(text), &e.AuditDetails)
}
