package storekit

import (
	"context"
	"sync"
	"time"

	"github.com/outmill/outmill"
)

type claimNotesKey struct{}

// ClaimNotes tells the caller of a claim in a set of stores what the records do not say: which were leased by
// an earlier claim, because their member has answered late, so that their leases end earlier, and whether a
// member has not answered yet; of one store, whether anything can become due without a commit. It is safe for
// concurrent use.
type ClaimNotes struct {
	mu         sync.Mutex
	at         map[outmill.Lease]time.Time
	unanswered bool
	nothing    bool
}

// WithClaimNotes returns a context for a claim, in which a store notes them.
func WithClaimNotes(ctx context.Context) (context.Context, *ClaimNotes) {
	notes := &ClaimNotes{}
	return context.WithValue(ctx, claimNotesKey{}, notes), notes
}

// note changes the notes, if the caller of the claim asks for them.
func note(ctx context.Context, change func(*ClaimNotes)) {
	if notes, ok := ctx.Value(claimNotesKey{}).(*ClaimNotes); ok {
		notes.mu.Lock()
		defer notes.mu.Unlock()
		change(notes)
	}
}

// NoteClaimBegan notes when the claim that leased the record began.
func NoteClaimBegan(ctx context.Context, lease outmill.Lease, at time.Time) {
	note(ctx, func(n *ClaimNotes) {
		if n.at == nil {
			n.at = map[outmill.Lease]time.Time{}
		}
		n.at[lease] = at
	})
}

// NoteUnanswered notes that a member has not answered yet, or that its answer waits for a later claim.
func NoteUnanswered(ctx context.Context) { note(ctx, func(n *ClaimNotes) { n.unanswered = true }) }

// NoteNothing notes that the claim has found nothing, and that the store has nothing which it could return later, such as a record
// that waits for a retry, unless something is committed.
func NoteNothing(ctx context.Context) { note(ctx, func(n *ClaimNotes) { n.nothing = true }) }

// Began returns when the claim that leased the record began; usual if it is the one of the context.
func (n *ClaimNotes) Began(lease outmill.Lease, usual time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, known := n.at[lease]; known {
		return at
	}
	return usual
}

// Unanswered reports whether a later claim may have records of a member that has not answered this one.
func (n *ClaimNotes) Unanswered() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unanswered
}

// Nothing reports whether the store will have nothing for a claim until something is committed. It means nothing of a store that is made
// of several.
func (n *ClaimNotes) Nothing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nothing
}
