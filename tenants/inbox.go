package tenants

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// PutNote notes that a consumer handles a message, in the member that ctx names: see
// [WithTenant]. To that member, the message of another one comes from elsewhere. See roles.Inbox.
func (s *Set) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (duplicate bool, err error) {
	err = inOne(ctx, s, "put a note", inboxOf, func(ctx context.Context, m *member, inbox roles.Inbox) (err error) {
		note := note
		if note.Lease.Store != m.name() {
			note.Lease = outmill.Lease{}
		}
		note.Lease.Store = ""
		duplicate, err = inbox.PutNote(ctx, note, wait)
		return err
	})
	return duplicate, err
}

// HasNote asks the member that ctx names. See roles.Inbox.
func (s *Set) HasNote(ctx context.Context, consumer, key string) (noted bool, err error) {
	return get(ctx, s, "look for a note", inboxOf, func(ctx context.Context, inbox roles.Inbox) (bool, error) {
		return inbox.HasNote(ctx, consumer, key)
	})
}

// DeleteNotes deletes notes of all members that keep some. See roles.Inbox.
func (s *Set) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return tidy(ctx, s, "delete notes", limit, inboxOf, roles.Inbox.DeleteNotes)
}
