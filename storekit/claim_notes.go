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
// member has not answered yet. It is safe for concurrent use.
type ClaimNotes struct {
	mu         sync.Mutex
	at         map[outmill.Lease]time.Time
	unanswered bool
}

// WithClaimNotes returns a context for a claim, in which a store that is made of several notes them.
func WithClaimNotes(ctx context.Context) (context.Context, *ClaimNotes) {
	notes := &ClaimNotes{}
	return context.WithValue(ctx, claimNotesKey{}, notes), notes
}

// NoteClaimBegan notes when the claim that leased the record began, if the caller of the claim asks for it.
func NoteClaimBegan(ctx context.Context, lease outmill.Lease, at time.Time) {
	notes, ok := ctx.Value(claimNotesKey{}).(*ClaimNotes)
	if !ok {
		return
	}
	notes.mu.Lock()
	defer notes.mu.Unlock()
	if notes.at == nil {
		notes.at = map[outmill.Lease]time.Time{}
	}
	notes.at[lease] = at
}

// NoteUnanswered notes that a member has not answered yet, or that its answer waits for a later claim, if the
// caller of the claim asks for it.
func NoteUnanswered(ctx context.Context) {
	notes, ok := ctx.Value(claimNotesKey{}).(*ClaimNotes)
	if !ok {
		return
	}
	notes.mu.Lock()
	defer notes.mu.Unlock()
	notes.unanswered = true
}

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
