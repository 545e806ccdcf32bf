package storekit

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outmill/outmill/roles"
)

// ConnectionBudget bounds the connections of several stores to their servers: those of their pools and those that
// listen. A store takes part if it is opened by URL (outmill.Open, or the Open of its package) with a context of
// [ConnectionBudget.Context] and its package says so. Stores then share the budget like this: a pool that needs a
// connection while all are in use takes one that is idle in another pool, which is closed for it, or waits for the
// next that is released or closed. Those that wait are served in turn.
//
// It is safe for concurrent use.
type ConnectionBudget struct {
	most int
	wait time.Duration
	name string

	mu   sync.Mutex
	open int
	// waiting are the dials that wait, the first of them first. Each channel has room for the signal.
	waiting []chan struct{}
	pools   map[*BudgetedPool]struct{}
}

// NewConnectionBudget returns a budget of most connections, at least 1. wait is the longest that a pool waits for a
// connection; then it gets a [*ConnectionBudgetError]. setting names the budget in that error, such as
// "tenants.Config.MaxConnections".
func NewConnectionBudget(most int, wait time.Duration, setting string) *ConnectionBudget {
	return &ConnectionBudget{most: max(most, 1), wait: wait, name: setting, pools: map[*BudgetedPool]struct{}{}}
}

type budgetKey struct{}

// Context returns a context for opening a store within the budget.
func (b *ConnectionBudget) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, b)
}

// ConnectionBudgetOf returns the budget of the context; nil if it has none.
func ConnectionBudgetOf(ctx context.Context) *ConnectionBudget {
	b, _ := ctx.Value(budgetKey{}).(*ConnectionBudget)
	return b
}

// Use returns how many connections are open, and how many dials wait for one.
func (b *ConnectionBudget) Use() (open, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, len(b.waiting)
}

// ConnectionBudgetError says that all connections of a budget were in use for too long.
type ConnectionBudgetError struct {
	// Setting is the setting that has the budget, and Most its value.
	Setting string
	Most    int
	// Waited is how long the call waited.
	Waited time.Duration
}

func (e *ConnectionBudgetError) Error() string {
	return fmt.Sprintf("outmill: all %d connections of %s were in use for %s, by calls, by open transactions and by listeners for wake-ups: "+
		"raise it, hold fewer transactions at a time, or set WithoutWake, so that nothing listens", e.Most, e.Setting, e.Waited)
}

// BudgetedListener is a [roles.Waker] whose wake-ups from other processes can take a connection of a budget.
type BudgetedListener interface {
	roles.Waker
	// ListensWithin returns the budget that has the connection which listens while a context of Wake has not ended;
	// nil if there is none.
	ListensWithin() *ConnectionBudget
}

// IdleConnections is a pool as its budget sees it.
type IdleConnections interface {
	// Idle returns how many connections are open and not used. It asks no server.
	Idle() int
	// CloseIdle closes these connections.
	CloseIdle()
}

// BudgetedPool is a pool that takes its connections from a budget. The store closes it after the pool.
type BudgetedPool struct {
	budget *ConnectionBudget
	// idle is nil until the pool is open. The budget's lock guards these fields.
	idle IdleConnections
	open int
	// used is when a connection was last opened or released.
	used time.Time
}

// Join adds a pool to the budget, for a store that opens one. See [BudgetedPool.Serve].
func (b *ConnectionBudget) Join() *BudgetedPool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &BudgetedPool{budget: b}
	b.pools[p] = struct{}{}
	return p
}

// Leave removes the pool from the budget. Connections that are still open count until they are closed.
func (p *BudgetedPool) Leave() {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	delete(p.budget.pools, p)
}

// Serve says how the budget closes what is idle in the pool.
func (p *BudgetedPool) Serve(idle IdleConnections) {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	p.idle = idle
}

// Budget returns the budget of the pool.
func (p *BudgetedPool) Budget() *ConnectionBudget { return p.budget }

// Wait is the longest that a dial of the pool waits for its turn.
func (p *BudgetedPool) Wait() time.Duration { return p.budget.wait }

// Released reports whether the pool is to close a connection that it gets back, because somebody waits for one.
func (p *BudgetedPool) Released() (closeIt bool) {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	p.used = time.Now()
	return len(p.budget.waiting) > 0
}

// Dialer opens a network connection.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer returns the dialer of one connection to a server. It waits for its turn, and the connection counts until
// it is closed. What it dials while that connection is open (a request to cancel a statement) does not count, nor
// does UDP.
func (p *BudgetedPool) Dialer(dial Dialer) Dialer {
	var mu sync.Mutex
	counts := false
	count := func(now bool) (changed bool) {
		mu.Lock()
		defer mu.Unlock()
		changed = counts != now
		counts = now
		return changed
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(network, "udp") || !count(true) {
			return dial(ctx, network, addr)
		}
		release := func() {
			count(false)
			p.release()
		}
		if err := p.budget.take(ctx, p); err != nil {
			count(false)
			return nil, err
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			release()
			return nil, err
		}
		return &budgetedConn{Conn: conn, release: sync.OnceFunc(release)}, nil
	}
}

// lookEvery is how often a dial that waits looks for a connection that has become idle without a word.
const lookEvery = 20 * time.Millisecond

// take waits for the turn of a dial.
func (b *ConnectionBudget) take(ctx context.Context, p *BudgetedPool) error {
	turn := b.ask(p)
	if turn == nil {
		return nil
	}
	began := time.Now()
	last := time.NewTimer(b.wait)
	defer last.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		b.closeIdle()
		select {
		case <-turn:
			b.note(p)
			return nil
		case <-ctx.Done():
			b.giveUp(turn)
			return ctx.Err()
		case <-last.C:
			b.giveUp(turn)
			return &ConnectionBudgetError{Setting: b.name, Most: b.most, Waited: time.Since(began).Round(time.Millisecond)}
		case <-look.C:
		}
	}
}

// ask takes a connection, or returns what has a signal when one is handed over.
func (b *ConnectionBudget) ask(p *BudgetedPool) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open < b.most && len(b.waiting) == 0 {
		b.open++
		p.open++
		p.used = time.Now()
		return nil
	}
	turn := make(chan struct{}, 1)
	b.waiting = append(b.waiting, turn)
	return turn
}

// note counts a connection that was handed over.
func (b *ConnectionBudget) note(p *BudgetedPool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.open++
	p.used = time.Now()
}

func (p *BudgetedPool) release() {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	p.open--
	p.budget.handOver()
}

// handOver gives a connection that was closed to the first that waits. The caller holds the lock.
func (b *ConnectionBudget) handOver() {
	if len(b.waiting) == 0 {
		b.open--
		return
	}
	turn := b.waiting[0]
	b.waiting = b.waiting[1:]
	turn <- struct{}{}
}

// giveUp ends a wait.
func (b *ConnectionBudget) giveUp(turn chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, turn); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return
	}
	// Its turn came in the last moment.
	b.handOver()
}

// closeIdle closes what is idle in the pool that was not used for the longest time.
func (b *ConnectionBudget) closeIdle() {
	for _, idle := range b.leastUsed() {
		if idle.Idle() > 0 {
			idle.CloseIdle()
			return
		}
	}
}

// leastUsed are the pools with connections, those not used for the longest time first.
func (b *ConnectionBudget) leastUsed() []IdleConnections {
	b.mu.Lock()
	defer b.mu.Unlock()
	var pools []*BudgetedPool
	for p := range b.pools {
		if p.open > 0 && p.idle != nil {
			pools = append(pools, p)
		}
	}
	slices.SortFunc(pools, func(a, b *BudgetedPool) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.open, b.open))
	})
	list := make([]IdleConnections, len(pools))
	for i, p := range pools {
		list[i] = p.idle
	}
	return list
}

// closeWithin is how long Close waits until the server has closed the connection, too.
const closeWithin = time.Second

// budgetedConn counts until the server has closed it, because until then it takes one of the server's places.
type budgetedConn struct {
	net.Conn
	release func()
}

// Close ends the connection. It returns after the server has ended it, or a second at the latest.
func (c *budgetedConn) Close() error {
	defer c.release()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(closeWithin))
		for buffer := make([]byte, 512); ; {
			if _, err := c.Read(buffer); err != nil {
				break
			}
		}
	}
	return c.Conn.Close()
}
