package suite

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// Tally counts acks by name, and their order by key.
type Tally struct {
	mu    sync.Mutex
	acks  map[string]int
	Order map[string][]string
	total int
}

// NewTally returns an empty tally.
func NewTally() *Tally { return &Tally{acks: map[string]int{}, Order: map[string][]string{}} }

// Acked counts an ack.
func (t *Tally) Acked(r *outmill.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acks[r.MessageID]++
	t.Order[r.Key] = append(t.Order[r.Key], r.MessageID)
	t.total++
}

// Done reports whether n messages were acked.
func (t *Tally) Done(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total >= n
}

// RequireOnce checks that each of the names was acked once.
func (t *Tally) RequireOnce(e *Env, want []string) {
	e.T.Helper()
	require.Len(e.T, t.acks, len(want), "records acked")
	for _, name := range want {
		require.Equal(e.T, 1, t.acks[name], "acks of %s", name)
	}
}
