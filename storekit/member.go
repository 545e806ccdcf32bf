package storekit

import (
	"context"

	"github.com/outmill/outmill"
)

// MemberChooser is the role of a store that is made of others (package tenants): it directs calls to one
// of them.
type MemberChooser interface {
	// InMember returns a context whose calls are for the store that Record.Store names.
	InMember(ctx context.Context, name string) context.Context
}

// InStoreOf returns a context whose calls are for the store that has the record, if the store is made
// of several; ctx otherwise.
func InStoreOf(ctx context.Context, store outmill.Inspector, r *outmill.Record) context.Context {
	members, ok := outmill.As[MemberChooser](store)
	if !ok || r.Store == "" {
		return ctx
	}
	return members.InMember(ctx, r.Store)
}
