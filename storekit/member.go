package storekit

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// InStoreOf returns a context whose calls are for the store that has the record, if the store is made
// of several; ctx otherwise.
func InStoreOf(ctx context.Context, store outmill.Inspector, r *outmill.Record) context.Context {
	members, ok := outmill.As[roles.Members](store)
	if !ok || r.Store == "" {
		return ctx
	}
	return members.InMember(ctx, r.Store)
}
