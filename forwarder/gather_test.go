package forwarder_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/memstore"
)

// paced is a store and a destination whose calls take time, as those of servers do. Its clock is that of synctest.
type paced struct {
	outmill.Store
	claim, produce time.Duration

	mu sync.Mutex
	// claims counts the claims that found something.
	claims int
	// appended and batches have the time of each message, and the size of each publish.
	appended map[string]time.Time
	took     []time.Duration
	batches  []int
}

func (p *paced) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	records, err := p.Store.Claim(ctx, req)
	time.Sleep(p.claim)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(records) > 0 {
		p.claims++
	}
	return records, err
}

func (p *paced) Publish(string, ...*message.Message) error { panic("it takes batches") }
func (p *paced) Close() error                              { return nil }

func (p *paced) PublishBatch(_ context.Context, batch []storekit.Outgoing) error {
	time.Sleep(p.produce)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batches = append(p.batches, len(batch))
	for _, out := range batch {
		p.took = append(p.took, time.Since(p.appended[out.Message.UUID]))
	}
	return nil
}

// trickle forwards n messages, of which one comes each millisecond.
func (p *paced) trickle(t *testing.T, n int) {
	t.Helper()
	store := memstore.New(memstore.NewDatabase(), memstore.Options{})
	require.NoError(t, store.Ensure(t.Context()))
	p.Store, p.appended = store, map[string]time.Time{}
	fwd := newForwarder(t, p, p, forwarder.Config{})
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.Background()) }()
	<-fwd.Running()
	for range n {
		rec := &outmill.Record{ID: outmill.NewWorkItemID(), Topic: "orders"}
		rec.MessageID = rec.ID.String()
		p.mu.Lock()
		p.appended[rec.MessageID] = time.Now()
		p.mu.Unlock()
		require.NoError(t, store.Append(t.Context(), rec))
		time.Sleep(time.Millisecond)
	}
	_, err := fwd.Once(t.Context())
	require.NoError(t, err)
	require.NoError(t, fwd.Close())
	require.NoError(t, <-ended)
	require.Len(t, p.took, n)
	slices.Sort(p.took)
}

func TestGather(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name string
		// produce is how long a publish takes.
		produce time.Duration
		// claims and publishes are the most calls for 2,000 messages, and median is the longest latency.
		claims, publishes int
		median            time.Duration
	}{
		{"a claim that found few records waits for the publish, and for 5 ms", 2 * time.Millisecond, 320, 320, 8 * time.Millisecond},
		{"a slow publish is one claim, and what has come by then is one batch", 40 * time.Millisecond, 55, 55, 65 * time.Millisecond},
		{"a publish that is slower than the messages has full batches", 120 * time.Millisecond, 35, 22, 400 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &paced{claim: 1500 * time.Microsecond, produce: test.produce}
				p.trickle(t, 2000)
				t.Logf("%d claims, %d publishes, median %s, 99 %% %s", p.claims, len(p.batches), p.took[1000], p.took[1980])
				require.LessOrEqual(t, p.claims, test.claims, "claims")
				require.LessOrEqual(t, len(p.batches), test.publishes, "publishes")
				require.LessOrEqual(t, p.took[1000], test.median, "median")
			})
		})
	}
}
