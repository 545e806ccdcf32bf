package storekit

import (
	"context"
	"strconv"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// AuditRetention is how long a store keeps its audit, unless its configuration sets another
// time.
const AuditRetention = 90 * 24 * time.Hour

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
func NewAuditEntry(ctx context.Context, action roles.AuditAction, ids ...outmill.WorkItemID) roles.AuditEntry {
	return inCommand(ctx, newEntry(ctx, action, ids...))
}

// NewEditEntry is NewAuditEntry for an edit.
func NewEditEntry(ctx context.Context, before, after *outmill.Record) roles.AuditEntry {
	entry := newEntry(ctx, roles.AuditEdit, before.ID)
	entry.Before.Fingerprint, entry.Before.Size = FingerprintOf(before), len(before.Payload)
	entry.After.Fingerprint, entry.After.Size = FingerprintOf(after), len(after.Payload)
	names := changedNames(before.Metadata, after.Metadata)
	entry.Metadata = names[:min(len(names), maxAuditList)]
	for i := range entry.Metadata {
		entry.Metadata[i] = clip(entry.Metadata[i])
	}
	return inCommand(ctx, entry)
}

// NewSkipEntry is NewAuditEntry for a Skip of the record.
func NewSkipEntry(ctx context.Context, r *outmill.Record) roles.AuditEntry {
	entry := newEntry(ctx, roles.AuditSkip, r.ID)
	entry.Before.Fingerprint, entry.Before.Size = FingerprintOf(r), len(r.Payload)
	return inCommand(ctx, entry)
}

func newEntry(ctx context.Context, action roles.AuditAction, ids ...outmill.WorkItemID) roles.AuditEntry {
	entry := roles.AuditEntry{Actor: ActorOf(ctx), Action: action}
	entry.Filter, _ = ctx.Value(filterKey{}).(map[string]string)
	entry.IDs = append(entry.IDs, ids[:min(len(ids), maxAuditList)]...)
	switch action {
	case roles.AuditRequeue:
		entry.Before.Status, entry.After.Status = string(outmill.StatusDead), string(outmill.StatusPending)
	case roles.AuditDelete:
		entry.Before.Status, entry.After.Status = entry.Filter["status"], roles.AuditDeleted
	case roles.AuditEdit:
		entry.Before.Status, entry.After.Status = string(outmill.StatusDead), string(outmill.StatusDead)
	case roles.AuditSkip, roles.AuditEditRequeue:
		entry.Before.Status = string(outmill.StatusDead)
	}
	return entry
}

// WithFilter returns a context for the changes of a call by filter.
func WithFilter(ctx context.Context, query outmill.ListQuery) context.Context {
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
func CheckAudited(query roles.AuditQuery) (before int64, limit int, err error) {
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
func AuditPageOf(query roles.AuditQuery, limit int, entries []roles.AuditEntry) roles.AuditPage {
	page := roles.AuditPage{Entries: entries, Next: query.After, Done: len(entries) < limit}
	if len(entries) > 0 {
		page.Next = AuditPlace(entries[len(entries)-1])
	}
	return page
}

// AuditPlace returns the AuditQuery.After that continues behind an entry of its store.
func AuditPlace(entry roles.AuditEntry) string { return strconv.FormatInt(entry.Number, 10) }
