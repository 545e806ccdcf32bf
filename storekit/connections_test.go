package storekit_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

// house is a server that counts the connections to it, and a budget for them.
type house struct {
	*testing.T
	budget  *storekit.ConnectionBudget
	addr    string
	open    atomic.Int64
	highest atomic.Int64
}

func newHouse(t *testing.T, most int, wait time.Duration) *house {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &house{T: t, budget: storekit.NewConnectionBudget(most, wait, "the setting"), addr: listener.Addr().String()}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			now := h.open.Add(1)
			for highest := h.highest.Load(); now > highest && !h.highest.CompareAndSwap(highest, now); {
				highest = h.highest.Load()
			}
			work.Go(func() {
				// It ends when the client does.
				_, _ = conn.Read(make([]byte, 1))
				h.open.Add(-1)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	return h
}

// pool is a pool of connections that keeps them.
type pool struct {
	*house
	share *storekit.BudgetedPool
	mu    sync.Mutex
	idle  []net.Conn
}

func (h *house) pool() *pool {
	p := &pool{house: h, share: h.budget.Join()}
	p.share.Serve(p)
	h.Cleanup(func() {
		p.CloseIdle()
		p.share.Leave()
	})
	return p
}

func (p *pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

func (p *pool) CloseIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, conn := range idle {
		_ = conn.Close()
	}
}

func (p *pool) get(ctx context.Context) (net.Conn, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		conn := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return conn, nil
	}
	p.mu.Unlock()
	return p.dialer()(ctx, "tcp", p.addr)
}

func (p *pool) dialer() storekit.Dialer { return p.share.Dialer(new(net.Dialer).DialContext) }

// put keeps the connection, unless the budget wants it.
func (p *pool) put(conn net.Conn) {
	if p.share.Released() {
		_ = conn.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, conn)
}

func (p *pool) must() net.Conn {
	p.Helper()
	conn, err := p.get(p.Context())
	require.NoError(p, err)
	return conn
}

func (h *house) requireUse(open, waiting int) {
	h.Helper()
	nowOpen, nowWaiting := h.budget.Use()
	require.Equal(h, []int{open, waiting}, []int{nowOpen, nowWaiting})
}

func (h *house) awaitWaiting(n int) {
	h.Helper()
	require.Eventually(h, func() bool { _, waiting := h.budget.Use(); return waiting == n }, time.Minute, time.Millisecond)
}

func TestConnectionBudget(t *testing.T) {
	t.Parallel()
	const patience = time.Minute

	t.Run("many pools never have more connections than the budget", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, 3, patience)
		var work sync.WaitGroup
		for range 10 {
			p := h.pool()
			for range 3 {
				work.Go(func() {
					for range 10 {
						conn, err := p.get(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						p.put(conn)
					}
				})
			}
		}
		work.Wait()
		require.EqualValues(t, 3, h.highest.Load())
	})

	t.Run("an idle connection of the pool that was not used for the longest time is closed", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, 2, patience)
		old, young, third := h.pool(), h.pool(), h.pool()
		oldConn := old.must()
		young.put(young.must())
		old.put(oldConn)
		young.put(young.must())
		conn := third.must()
		require.Zero(t, old.Idle())
		require.Equal(t, 1, young.Idle())
		h.requireUse(2, 0)
		third.put(conn)
	})

	t.Run("a connection that becomes idle without a word is found", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, 1, patience)
		one, other := h.pool(), h.pool()
		conn := one.must()
		got := make(chan net.Conn)
		go func() { got <- other.must() }()
		h.awaitWaiting(1)
		one.mu.Lock()
		one.idle = append(one.idle, conn)
		one.mu.Unlock()
		other.put(<-got)
	})

	t.Run("those that wait are served in turn", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, 1, patience)
		one := h.pool()
		conn := one.must()
		got := make(chan int)
		var work sync.WaitGroup
		for i := range 5 {
			p := h.pool()
			work.Go(func() {
				conn := p.must()
				got <- i
				p.put(conn)
			})
			h.awaitWaiting(i + 1)
		}
		one.put(conn)
		for i := range 5 {
			require.Equal(t, i, <-got)
		}
		work.Wait()
	})

	t.Run("a dial that waits too long or is cancelled fails and takes nothing", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, 1, 10*time.Millisecond)
		p := h.pool()
		conn := p.must()
		_, err := h.pool().get(t.Context())
		var full *storekit.ConnectionBudgetError
		require.ErrorAs(t, err, &full)
		require.Equal(t, 1, full.Most)
		require.ErrorContains(t, err, "all 1 connections of the setting were in use")
		require.ErrorContains(t, err, "by listeners for wake-ups: raise it")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = h.pool().get(ctx)
		require.ErrorIs(t, err, context.Canceled)
		h.requireUse(1, 0)
		require.NoError(t, conn.Close())
		h.requireUse(0, 0)
	})

	t.Run("a dial that fails gives its place back and so does a connection that is closed twice", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, 1, patience)
		p := h.pool()
		broken := errors.New("broken")
		dial := p.share.Dialer(func(context.Context, string, string) (net.Conn, error) { return nil, broken })
		_, err := dial(t.Context(), "tcp", h.addr)
		require.ErrorIs(t, err, broken)
		h.requireUse(0, 0)
		conn := p.must()
		h.requireUse(1, 0)
		require.NoError(t, conn.Close())
		require.Error(t, conn.Close())
		h.requireUse(0, 0)
	})

	t.Run("a request to cancel takes no second place nor does UDP", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, 1, 10*time.Millisecond)
		dial := h.pool().dialer()
		conn, err := dial(t.Context(), "tcp", h.addr)
		require.NoError(t, err)
		request, err := dial(t.Context(), "tcp", h.addr)
		require.NoError(t, err)
		require.NoError(t, request.Close())
		h.requireUse(1, 0)
		datagrams, err := h.pool().dialer()(t.Context(), "udp", h.addr)
		require.NoError(t, err)
		require.NoError(t, datagrams.Close())
		require.NoError(t, conn.Close())
		again, err := dial(t.Context(), "tcp", h.addr)
		require.NoError(t, err)
		h.requireUse(1, 0)
		require.NoError(t, again.Close())
	})

	t.Run("a connection counts until the server has closed it", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, 1, patience)
		conn := h.pool().must()
		require.NoError(t, conn.Close())
		require.Zero(t, h.open.Load())
	})

	t.Run("the context has the budget", func(t *testing.T) {
		t.Parallel()
		require.Nil(t, storekit.ConnectionBudgetOf(t.Context()))
		b := storekit.NewConnectionBudget(0, 0, "")
		require.Same(t, b, storekit.ConnectionBudgetOf(b.Context(t.Context())))
	})
}
