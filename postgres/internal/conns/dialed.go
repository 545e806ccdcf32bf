package conns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// afterCut is the time that a pool has to close after its connections were closed under it.
const afterCut = 2 * time.Second

// dialed has the network connections of a pool that Open made, so that Close can close those that
// a caller still has: a call on a connection of which nothing is heard any more would keep
// pgxpool's Close until the operating system gives up.
type dialed struct {
	mu    sync.Mutex
	conns map[*dialedConn]struct{}
	over  bool
}

type dialedConn struct {
	net.Conn
	of *dialed
}

// follow notes the connections that the configuration dials.
func follow(config *pgxpool.Config) *dialed {
	d := &dialed{conns: map[*dialedConn]struct{}{}}
	config.ConnConfig.DialFunc = d.dialer(config.ConnConfig.DialFunc)
	return d
}

func (d *dialed) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		noted := &dialedConn{conn, d}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.over {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		d.conns[noted] = struct{}{}
		return noted, nil
	}
}

func (c *dialedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite makes it possible to wait for the server's end of the connection, which a budget of
// connections does.
func (c *dialedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// cut closes all connections.
func (d *dialed) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	for c := range d.conns {
		_ = c.Conn.Close()
	}
}

// Close closes a pool that Open made, and does nothing for another one. Callers that have a connection get some time to return it; then
// it is closed under them.
func (c *Conns) Close(name string, patience time.Duration) error {
	if c.owned == nil {
		return nil
	}
	defer c.owned.budgeted.leave()
	done := make(chan struct{})
	go func() {
		c.owned.pool.Close()
		close(done)
	}()
	if within(done, patience) {
		return nil
	}
	c.owned.dialed.cut()
	if within(done, afterCut) {
		return nil
	}
	return fmt.Errorf("outmill/postgres: close %s: a caller has not returned its connection within %s; the connection is closed, and "+
		"the caller's transaction is rolled back: end transactions before Close", name, patience)
}

func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
