package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// gated is a store whose claims lease records, and answer when the gate opens, or with the error of their
// context. A deaf one does not hear the end of the context.
type gated struct {
	*spy
	deaf bool

	mu   sync.Mutex
	gate chan struct{}
	// waiting counts the claims that wait, answered those that have answered.
	waiting, answered int
}

func (g *gated) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = make(chan struct{})
}

func (g *gated) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.gate)
	g.gate = nil
}

func (g *gated) counts() (waiting, answered int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting, g.answered
}

func (g *gated) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	records, err := g.spy.Claim(ctx, req)
	g.mu.Lock()
	gate := g.gate
	if gate != nil {
		g.waiting++
	}
	g.mu.Unlock()
	if gate != nil {
		ended := ctx.Done()
		if g.deaf {
			ended = nil
		}
		select {
		case <-gate:
		case <-ended:
			records, err = nil, ctx.Err()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered++
	return records, err
}

// withGated makes a set of the members slow, whose gate is open, and quick. Claims wait for slow for a
// short time only, and its own calls for a long time.
func withGated(t *testing.T, change func(*tenants.Config)) (*rig, *gated) {
	t.Helper()
	slow, quick := &gated{spy: newSpy(t, "slow")}, newSpy(t, "quick")
	r := newRig(t, nil, func(c *tenants.Config) {
		c.CallTimeout = time.Minute
		c.Discovery = tenants.Static{{Key: "slow", Store: slow}, {Key: "quick", Store: quick}}
		if change != nil {
			change(c)
		}
	})
	r.members["quick"] = quick
	return r, slow
}

// claimFor claims for the owner until records come. On a busy machine all members may be late for a claim.
func (r *rig) claimFor(owner outmill.OwnerToken, limit int) []*outmill.Record {
	r.Helper()
	req, deadline := request(limit), time.After(soon)
	req.Owner, req.Order = owner, outmill.OrderKey
	for {
		found, err := r.set.Claim(r.Context(), req)
		if !errors.Is(err, storekit.ErrStoreAway) {
			require.NoError(r, err)
		}
		if len(found) > 0 {
			return found
		}
		select {
		case <-deadline:
			require.FailNow(r, "no record comes", "%v", err)
		case <-time.After(tick):
		}
	}
}

// appendKey writes a record with a key.
func (r *rig) appendKey(member, id, key string) {
	r.Helper()
	require.NoError(r, r.set.Append(r.Context(), &outmill.Record{MessageID: id, Topic: topic, TenantID: member, Key: key}))
}

func TestSet_Late(t *testing.T) {
	t.Parallel()

	for name, strategy := range map[string]tenants.Strategy{"in parallel": nil, "in turn": tenants.RoundRobin{}} {
		t.Run("a claim does not wait for a member that has not answered, and a later one hands out its records, "+name, func(t *testing.T) {
			t.Parallel()
			r, slow := withGated(t, func(c *tenants.Config) { c.Strategy = strategy })
			slow.shut()
			r.append("slow", 1)
			r.append("quick", 2)
			owner := outmill.NewOwnerToken()
			for range 2 {
				require.Equal(t, "quick", r.claimFor(owner, 1)[0].Store)
			}
			require.Eventually(t, func() bool {
				_, err := r.set.Claim(t.Context(), request(1))
				require.NoError(t, err)
				waiting, _ := slow.counts()
				return waiting == 1
			}, soon, tick)
			waiting, answered := slow.counts()
			require.Equal(t, 1, waiting, "it is not asked again before it has answered")
			require.Zero(t, answered)
			slow.open()
			found := r.claimFor(owner, 1)
			require.Equal(t, "slow", found[0].Store)
			require.Equal(t, 1, found[0].Claims)
		})
	}

	t.Run("a claim without records ends when a member that has answered gets some", func(t *testing.T) {
		t.Parallel()
		// Without that it would wait for a minute.
		r, slow := withGated(t, func(c *tenants.Config) { c.CallTimeout = 10 * time.Minute })
		slow.shut()
		before := r.members["quick"].called("Claim")
		ended := make(chan error, 1)
		go func() {
			_, err := r.set.Claim(t.Context(), request(1))
			ended <- err
		}()
		require.Eventually(t, func() bool {
			waiting, _ := slow.counts()
			return waiting == 1 && r.members["quick"].called("Claim") > before
		}, soon, tick)
		r.append("quick", 1)
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(soon):
			require.Fail(t, "the claim waits for the slow member")
		}
		slow.open()
	})

	t.Run("an answer is handed out in parts if a claim has too little room", func(t *testing.T) {
		t.Parallel()
		r, slow := withGated(t, nil)
		slow.shut()
		owner := outmill.NewOwnerToken()
		for i := range 5 {
			r.appendKey("slow", fmt.Sprint("slow/", i), "k")
		}
		r.append("quick", 1)
		require.Equal(t, []string{"quick/0"}, ids(r.claimFor(owner, 20)))
		slow.open()
		var seen []string
		for len(seen) < 5 {
			found := r.claimFor(owner, 2)
			require.LessOrEqual(t, len(found), 2)
			seen = append(seen, ids(found)...)
		}
		require.Equal(t, []string{"slow/0", "slow/1", "slow/2", "slow/3", "slow/4"}, seen)
	})

	t.Run("an answer is given back if its owner gave back earlier records, and not if another one did", func(t *testing.T) {
		t.Parallel()
		for _, same := range []bool{true, false} {
			r, slow := withGated(t, nil)
			owner, other := outmill.NewOwnerToken(), outmill.NewOwnerToken()
			r.appendKey("slow", "first", "k")
			r.appendKey("slow", "others", "o")
			back := r.claimFor(owner, 1)
			require.Equal(t, []string{"first"}, ids(back))
			if !same {
				back = r.claimFor(other, 1)
				require.Equal(t, []string{"others"}, ids(back))
			}
			r.appendKey("slow", "second", "k")
			r.append("quick", 1)
			slow.shut()
			require.Equal(t, []string{"quick/0"}, ids(r.claimFor(owner, 20)))
			require.NoError(t, r.set.Release(t.Context(), leasesOf(back)))
			slow.open()
			found := r.claimFor(owner, 1)
			if same {
				require.Equal(t, []string{"first"}, ids(found))
				continue
			}
			require.Equal(t, []string{"second"}, ids(found))
			require.Equal(t, 1, found[0].Claims)
		}
	})

	t.Run("records that a claim leases after its time come again at once", func(t *testing.T) {
		t.Parallel()
		r, slow := withGated(t, func(c *tenants.Config) { c.CallTimeout = 100 * time.Millisecond })
		slow.deaf = true
		// By the set it would be bounded, which a busy machine does not meet.
		r.appendBy(slow, "slow", 1)
		slow.shut()
		require.Eventually(t, func() bool {
			_, _ = r.set.Claim(t.Context(), request(1))
			return r.set.Status().Members[1].State == tenants.StateFailing
		}, soon, tick)
		slow.open()
		require.Equal(t, []string{"slow/0"}, ids(r.claimFor(outmill.NewOwnerToken(), 1)))
	})

	t.Run("Close gives back what no claim has taken", func(t *testing.T) {
		t.Parallel()
		for _, before := range []bool{true, false} {
			r, slow := withGated(t, nil)
			slow.shut()
			r.append("slow", 3)
			r.append("quick", 1)
			require.Equal(t, []string{"quick/0"}, ids(r.claimFor(outmill.NewOwnerToken(), 10)))
			if before {
				slow.open()
				require.NoError(t, r.set.Close())
			} else {
				closed := make(chan error, 1)
				go func() { closed <- r.set.Close() }()
				slow.open()
				require.NoError(t, <-closed)
			}
			left, err := slow.List(t.Context(), outmill.ListQuery{})
			require.NoError(t, err)
			require.Len(t, left, 3)
			for _, rec := range left {
				require.Equal(t, outmill.StatusPending, rec.Status)
			}
		}
	})

	t.Run("Once waits for the records of a member that is late", func(t *testing.T) {
		t.Parallel()
		// The first claim without records waits for 2 s.
		r, slow := withGated(t, func(c *tenants.Config) { c.CallTimeout = 20 * time.Second })
		r.append("slow", 2)
		r.append("quick", 1)
		slow.shut()
		forwarded := &counter{}
		f, err := forwarder.New(r.set, forwarded, forwarder.Config{Group: outmill.DefaultGroup}, nil)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			_, err := f.Once(t.Context())
			ended <- err
		}()
		require.Eventually(t, func() bool { return forwarded.Load() == 1 }, soon, tick)
		claims := r.members["quick"].called("Claim")
		require.Eventually(t, func() bool { return r.members["quick"].called("Claim") > claims+5 }, soon, tick, "it goes on")
		slow.open()
		require.NoError(t, <-ended)
		require.Equal(t, int64(3), forwarded.Load())
	})
}

// counter is a publisher that counts messages.
type counter struct{ atomic.Int64 }

func (c *counter) Publish(_ string, messages ...*message.Message) error {
	c.Add(int64(len(messages)))
	return nil
}

func (*counter) Close() error { return nil }
