package forwarder_test

import (
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/storekit"
)

// narrow is a publisher that knows the largest message that it can take, at first or once it has published.
type narrow struct {
	mu   sync.Mutex
	most int
	late bool
	got  []string
}

func (p *narrow) MaxMessageBytes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late && p.got == nil {
		return 0
	}
	return p.most
}

func (p *narrow) Publish(_ string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		p.got = append(p.got, msg.UUID)
	}
	return nil
}

func (p *narrow) Close() error { return nil }

func TestForwarder_LeavesRecordsUnreadThatAreTooLarge(t *testing.T) {
	t.Parallel()
	keep := func(_ string, msg *message.Message) (*message.Message, error) { return msg, nil }
	for name, one := range map[string]struct {
		most int
		cfg  forwarder.Config
		want []string
	}{
		"with a publisher that names its limit": {most: 20_000, want: []string{"small"}},
		"with one that does not know it":        {want: []string{"large", "small"}},
		"with a hook that may change messages":  {most: 20_000, cfg: forwarder.Config{Transform: keep}, want: []string{"large", "small"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := engine.New(memdriver.Driver{Database: memdriver.New()}, engine.Config{Name: "memory"})
			defer func() { require.NoError(t, store.Close()) }()
			require.NoError(t, store.Ensure(t.Context()))
			large := &outmill.Record{MessageID: "large", Topic: "orders", Key: "k", Payload: make([]byte, 40_000)}
			require.NoError(t, store.Append(t.Context(), large, &outmill.Record{MessageID: "small", Topic: "orders", Key: "k"}))
			p := &narrow{most: one.most}
			f, err := forwarder.New(store, p, one.cfg, nil)
			require.NoError(t, err)
			n, err := f.Once(t.Context())
			require.NoError(t, err)
			require.Equal(t, len(one.want), n)
			require.Equal(t, one.want, p.got)
			if len(one.want) == 1 {
				got, err := store.Get(t.Context(), large.ID)
				require.NoError(t, err)
				require.Equal(t, outmill.StatusDead, got.Status)
				require.Contains(t, got.LastError, storekit.TooLargeError)
			}
		})
	}
}

// wrapped is a decorator that says nothing of sizes.
type wrapped struct{ message.Publisher }

func (p wrapped) Unwrap() message.Publisher { return p.Publisher }

func TestForwarder_AsksForTheLimitBeforeEachClaim(t *testing.T) {
	t.Parallel()
	store := engine.New(memdriver.Driver{Database: memdriver.New()}, engine.Config{Name: "memory"})
	defer func() { require.NoError(t, store.Close()) }()
	require.NoError(t, store.Ensure(t.Context()))
	p := &narrow{most: 20_000, late: true}
	f, err := forwarder.New(store, p, forwarder.Config{}, nil)
	require.NoError(t, err)
	for i, want := range []string{"small", "small"} {
		large := &outmill.Record{MessageID: "large", Topic: "orders", Payload: make([]byte, 40_000)}
		small := &outmill.Record{MessageID: want, Topic: "orders"}
		if i == 0 {
			// The publisher does not know its limit yet.
			require.NoError(t, store.Append(t.Context(), small))
		} else {
			require.NoError(t, store.Append(t.Context(), large, small))
		}
		_, err := f.Once(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"small", "small"}, p.got)

	// A decorator that does not declare the limit may make messages smaller.
	p = &narrow{most: 20_000}
	f, err = forwarder.New(store, wrapped{p}, forwarder.Config{Group: "other"}, nil)
	require.NoError(t, err)
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "other"}))
	require.NoError(t, store.Append(t.Context(), &outmill.Record{MessageID: "large", Topic: "orders", Payload: make([]byte, 40_000)}))
	_, err = f.Once(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"large"}, p.got)
}
