package storekit

import (
	"context"
	"sync"
	"time"

	"github.com/outmill/outmill"
)

type claimBeginsKey struct{}

// ClaimBegins tells the caller of a claim which records were leased by an earlier one: those of a member of
// a set that has answered late. Their leases end earlier. It is safe for concurrent use.
type ClaimBegins struct {
	mu sync.Mutex
	at map[outmill.Lease]time.Time
}

// WithClaimBegins returns a context for a claim, in which a store that is made of several notes them.
func WithClaimBegins(ctx context.Context) (context.Context, *ClaimBegins) {
	begins := &ClaimBegins{}
	return context.WithValue(ctx, claimBeginsKey{}, begins), begins
}

// NoteClaimBegan notes when the claim that leased the record began, if the caller of the claim asks for it.
func NoteClaimBegan(ctx context.Context, lease outmill.Lease, at time.Time) {
	begins, ok := ctx.Value(claimBeginsKey{}).(*ClaimBegins)
	if !ok {
		return
	}
	begins.mu.Lock()
	defer begins.mu.Unlock()
	if begins.at == nil {
		begins.at = map[outmill.Lease]time.Time{}
	}
	begins.at[lease] = at
}

// Of returns when the claim that leased the record began; usual where it is the one of the context.
func (b *ClaimBegins) Of(lease outmill.Lease, usual time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, known := b.at[lease]; known {
		return at
	}
	return usual
}
