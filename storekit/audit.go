package storekit

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/outmill/outmill"
)

// AuditRetention is how long a store keeps its audit, unless its configuration sets another
// time.
const AuditRetention = 90 * 24 * time.Hour

// Audit is a role of a store that notes what operators change, in the transaction of the
// change: each call of Requeue, Delete, RequeueWhere, DeleteWhere, Edit and Skip that changes a
// record leaves one entry, and so do the calls of one command ([OneCommand]). A call in several
// transactions writes the entry in the first of them, and brings it up to date in the others. A
// worker that settles a record leaves none. outmill.As finds the role.
//
// The audit is a table of its own, without an index that publishers or workers write. It
// contains no payload and no value of the metadata: an edit leaves fingerprints, sizes and the
// names of the metadata that changed.
type Audit interface {
	// Audited returns entries, the newest first. Call it again, with AuditQuery.After set to
	// AuditPage.Next, until AuditPage.Done. It returns an outmill.ErrInvalidConfig for a
	// negative limit and for an After that is not from a page of this store.
	Audited(ctx context.Context, query AuditQuery) (AuditPage, error)

	// DeleteOldAudit deletes up to limit entries that are older than the store's retention,
	// and returns how many. A number below limit means that none is left. A janitor calls it.
	DeleteOldAudit(ctx context.Context, limit int) (int, error)
}

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
	// FingerprintOf.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Size is the size of the record's payload in bytes, where there is a fingerprint.
	Size int `json:"size,omitempty"`
}

// AuditDeleted is the AuditState.Status of records that are gone.
const AuditDeleted = "deleted"

// maxAuditList limits the lists of an entry.
const maxAuditList = 100

type (
	actorKey  struct{}
	filterKey struct{}
)

// WithActor returns a context that names who makes the calls of an operator, such as
// "ann@example.com", for the audit. A text that is too long is cut to MaxActorLength, and bytes
// that no engine can store are removed.
func WithActor(ctx context.Context, name string) context.Context {
	name = CleanError(name)
	for utf16Length(name) > MaxActorLength {
		name = clipTo(name, len(name)-1)
	}
	return context.WithValue(ctx, actorKey{}, name)
}

// MaxActorLength is the largest length of an actor's name, in UTF-16 units.
const MaxActorLength = outmill.MaxTextLength

// ActorOf returns the name that WithActor put into the context, or "".
func ActorOf(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}

// NewAuditEntry returns the entry for a transaction. It has the actor of the context, in a
// call by filter the filter, and what earlier transactions of the same command have put into
// it.
//
// A transaction that changes records writes the entry, with a number, the time and the count. If
// the store has an entry with the same Command, the transaction writes the action and the details into that one, and
// adds its count; if the action differs from the former one, the count begins again.
func NewAuditEntry(ctx context.Context, action AuditAction, ids ...outmill.WorkItemID) AuditEntry {
	return inCommand(ctx, newEntry(ctx, action, ids...))
}

func newEntry(ctx context.Context, action AuditAction, ids ...outmill.WorkItemID) AuditEntry {
	entry := AuditEntry{Actor: ActorOf(ctx), Action: action}
	entry.Filter, _ = ctx.Value(filterKey{}).(map[string]string)
	entry.IDs = append(entry.IDs, ids[:min(len(ids), maxAuditList)]...)
	switch action {
	case AuditRequeue:
		entry.Before.Status, entry.After.Status = string(outmill.StatusDead), string(outmill.StatusPending)
	case AuditDelete:
		entry.Before.Status, entry.After.Status = entry.Filter["status"], AuditDeleted
	case AuditEdit:
		entry.Before.Status, entry.After.Status = string(outmill.StatusDead), string(outmill.StatusDead)
	case AuditSkip, AuditEditRequeue:
		entry.Before.Status = string(outmill.StatusDead)
	}
	return entry
}

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

// withFilter returns a context for the changes of a call by filter.
func withFilter(ctx context.Context, query outmill.ListQuery) context.Context {
	filter := map[string]string{}
	for name, value := range map[string]string{
		"group": query.Group, "topic": query.Topic, "status": string(query.Status), "key": query.Key, "message_id": query.MessageID,
		"correlation_id": query.CorrelationID, "tenant_id": query.TenantID, "error_text": query.ErrorText,
		"contract": query.Contract, "contract_version": VersionText(query.ContractVersion),
	} {
		if value != "" {
			filter[name] = clip(value)
		}
	}
	for name, value := range map[string]time.Time{"created_after": query.CreatedAfter, "created_before": query.CreatedBefore} {
		if !value.IsZero() {
			filter[name] = value.UTC().Format(time.RFC3339Nano)
		}
	}
	return context.WithValue(ctx, filterKey{}, filter)
}

// CheckAudited returns the number behind which a page of Audited begins, the largest one for
// the first page, and the limit. It refuses others as an outmill.ErrInvalidConfig.
func CheckAudited(query AuditQuery) (before int64, limit int, err error) {
	if query.Limit < 0 {
		return 0, 0, InvalidConfig("AuditQuery.Limit is %d: want 0 (%d) or more", query.Limit, defaultListLimit)
	}
	if limit = query.Limit; limit == 0 {
		limit = defaultListLimit
	}
	if query.After == "" {
		return 1<<63 - 1, limit, nil
	}
	if before, err = strconv.ParseInt(query.After, 10, 64); err != nil {
		return 0, 0, InvalidConfig("AuditQuery.After is %q: want the AuditPage.Next of a page of this store", clip(query.After))
	}
	return before, limit, nil
}

// AuditPageOf makes the page of the query from the store's entries: the next ones behind it, up
// to the limit of CheckAudited.
func AuditPageOf(query AuditQuery, limit int, entries []AuditEntry) AuditPage {
	page := AuditPage{Entries: entries, Next: query.After, Done: len(entries) < limit}
	if len(entries) > 0 {
		page.Next = AuditPlace(entries[len(entries)-1])
	}
	return page
}

// AuditPlace returns the AuditQuery.After that continues behind an entry of its store.
func AuditPlace(entry AuditEntry) string { return strconv.FormatInt(entry.Number, 10) }
