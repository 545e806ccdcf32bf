package storekit

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/outmill/outmill/roles"
)

// OneCommand returns a context whose calls of an operator leave one entry together in the audit of
// their store, such as the calls of RequeueWhere of a tool that goes through all records that match:
//
//	ctx = storekit.OneCommand(storekit.WithActor(ctx, "ann@example.com"))
//	for {
//		page, err := operator.RequeueWhere(ctx, query)
//		…
//	}
//
// The first transaction that changes a record writes the entry, and each later one adds its
// records to the count: if the program ends in between, the entry has what was done until then.
// Each member of a tenants.Set has an entry of its own, and so has each action; only Edit
// and a Requeue after it share one, [AuditEditRequeue]. A context that has a command already is returned
// as it is. Use a context for one store; its calls may be concurrent.
func OneCommand(ctx context.Context) context.Context {
	if commandOf(ctx) != nil {
		return ctx
	}
	return context.WithValue(ctx, commandKey{}, &command{entries: map[string]roles.AuditEntry{}})
}

// CommandInMember returns a context for the calls of a command on the named member of a store that
// is made of several. Each member has an entry of its own.
func CommandInMember(ctx context.Context, name string) context.Context {
	if commandOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, commandMemberKey{}, commandMember(ctx)+"\x00"+name)
}

type (
	commandKey       struct{}
	commandMemberKey struct{}
)

// command has the entries that its calls have begun, by the member of a store and the action.
type command struct {
	mu      sync.Mutex
	entries map[string]roles.AuditEntry
}

func commandOf(ctx context.Context) *command {
	c, _ := ctx.Value(commandKey{}).(*command)
	return c
}

func commandMember(ctx context.Context) string {
	name, _ := ctx.Value(commandMemberKey{}).(string)
	return name
}

// inCommand returns the entry of the context's command with what the next transaction does. A call
// without a command has an entry of its own.
func inCommand(ctx context.Context, next roles.AuditEntry) roles.AuditEntry {
	c := commandOf(ctx)
	if c == nil {
		next.Command = uuid.NewString()
		return next
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	place := func(action roles.AuditAction) string { return commandMember(ctx) + "\x00" + string(action) }
	at := place(next.Action)
	if _, edited := c.entries[place(roles.AuditEdit)]; edited && next.Action == roles.AuditRequeue {
		at = place(roles.AuditEdit)
	}
	if entry, begun := c.entries[at]; begun {
		next = goesOn(entry, next)
	} else {
		next.Command = uuid.NewString()
	}
	c.entries[at] = next
	return next
}

// goesOn adds what the next transaction does.
func goesOn(e, next roles.AuditEntry) roles.AuditEntry {
	next.Command = e.Command
	ids := slices.Clone(e.IDs)
	for _, id := range next.IDs {
		if len(ids) < maxAuditList && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	next.IDs = ids
	if e.Action != next.Action {
		next.Action, next.Before, next.Metadata = roles.AuditEditRequeue, e.Before, e.Metadata
		next.After.Fingerprint, next.After.Size = e.After.Fingerprint, e.After.Size
	}
	return next
}
