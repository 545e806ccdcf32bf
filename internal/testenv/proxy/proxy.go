// Package proxy forwards connections to a server for tests that cut them, or that delay requests.
package proxy

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy forwards TCP connections to a server, and can cut them or hold requests back. All methods
// may be called concurrently.
type Proxy struct {
	listener net.Listener
	target   string
	addr     string
	work     sync.WaitGroup
	turns    atomic.Int64

	mu    sync.Mutex
	links map[*link]struct{}
	holds []*Held
	ended chan struct{}
	// refuses is true between Refuse and Return.
	refuses bool
	// delay is how long data waits, and changed is closed when that changes.
	delay   time.Duration
	changed chan struct{}
}

// Held is a request that the proxy holds back.
type Held struct {
	text []byte
	// came says that the proxy has the request, released that it may send it, and answered that
	// the server has answered it or has ended the connection.
	came, released, answered chan struct{}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	// deaf says that the proxy drops the server's data; loses, that it drops the server's next
	// data and cuts the connection.
	deaf, loses atomic.Bool
	// halfOpen says that the proxy drops the data of both sides, and tells neither that the other
	// has closed.
	halfOpen atomic.Bool
	// answered says that the server has sent the last data.
	answered atomic.Bool
	// held is the request that the server has to answer, if the proxy has held it back.
	held  atomic.Pointer[Held]
	proxy *Proxy
}

// New starts a proxy on loopback to the target, host:port, and ends it with the
// test. A connection to a target that does not listen is closed at once.
func New(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err, "start a proxy")
	p := &Proxy{
		listener: listener, target: target, addr: listener.Addr().String(), links: map[*link]struct{}{}, ended: make(chan struct{}),
		changed: make(chan struct{}),
	}
	p.work.Go(func() { p.accept(listener) })
	tb.Cleanup(p.end)
	return p
}

// Addr returns the host:port of the proxy.
func (p *Proxy) Addr() string { return p.addr }

// CutAll cuts the existing connections.
func (p *Proxy) CutAll() { p.each((*link).cut) }

// Deafen drops all further data of the server on the existing connections, so that a later
// cut loses the answers to executed requests.
func (p *Proxy) Deafen() { p.each(func(l *link) { l.deaf.Store(true) }) }

// HalfOpen drops all further data on the existing connections, in both directions, and leaves them
// open, as a firewall does that has forgotten them. New connections work.
func (p *Proxy) HalfOpen() { p.each(func(l *link) { l.halfOpen.Store(true) }) }

// LoseAnswers cuts each existing connection at the server's next answer: the server has
// executed the request, but the client gets no answer.
func (p *Proxy) LoseAnswers() { p.each(func(l *link) { l.loses.Store(true) }) }

// Delay has all data wait so long in the proxy, in both directions and on all connections, also data that
// is on its way. With an hour nothing passes until the next call of Delay. 0, as at first, is no delay.
func (p *Proxy) Delay(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait returns when data that has just come may go on.
func (p *Proxy) wait() {
	came := time.Now()
	for {
		p.mu.Lock()
		left, changed := p.delay-time.Since(came), p.changed
		p.mu.Unlock()
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-p.ended:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// Hold holds back the next request that contains the text, also if its client ends the connection,
// until Deliver. Several calls hold back several requests, in their order.
func (p *Proxy) Hold(text string) *Held {
	h := &Held{[]byte(text), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// Came is closed when the proxy has the request.
func (h *Held) Came() <-chan struct{} { return h.came }

// Deliver sends the request to the server, and waits until the server has answered it. Call it
// once, after Came.
func (h *Held) Deliver() {
	close(h.released)
	<-h.answered
}

// RoundTrips is how often clients have sent data since the server's last answer on their
// connection: how long a client waits for a server that is far away. A client that ends a
// connection with a message counts as one more.
func (p *Proxy) RoundTrips() int { return int(p.turns.Load()) }

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.target) //nolint:noctx // a loopback address answers or refuses at once
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	l := &link{client: client, server: server, proxy: p}
	l.answered.Store(true)
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(answers{l}, server)
		l.ended()
		l.endHeld()
	})
	_, _ = io.Copy(requests{l}, client)
	l.ended()
	back.Wait()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		return false
	default:
	}
	if p.refuses {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) each(do func(l *link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

// Refuse cuts the existing connections and takes no others, as a server that is away.
func (p *Proxy) Refuse() {
	p.stopListening()
	p.CutAll()
}

// Return takes connections again after Refuse, at the same address.
func (p *Proxy) Return(tb testing.TB) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", p.addr)
	require.NoError(tb, err, "listen again")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener, p.refuses = listener, false
	p.work.Go(func() { p.accept(listener) })
}

func (p *Proxy) stopListening() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = true
	_ = p.listener.Close()
}

func (p *Proxy) end() {
	p.mu.Lock()
	close(p.ended)
	p.mu.Unlock()
	p.stopListening()
	p.CutAll()
	p.work.Wait()
}

// ended cuts the connection after one of its sides has ended, unless the other must not notice.
func (l *link) ended() {
	if l.halfOpen.Load() {
		<-l.proxy.ended
	}
	l.cut()
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// requests writes the client's data to the server.
type requests struct{ *link }

func (r requests) Write(b []byte) (int, error) {
	r.proxy.wait()
	if r.halfOpen.Load() {
		return len(b), nil
	}
	if r.answered.Swap(false) {
		r.proxy.turns.Add(1)
	}
	h := r.proxy.toHold(b)
	if h == nil {
		return r.server.Write(b)
	}
	close(h.came)
	select {
	case <-h.released:
	case <-r.proxy.ended:
		return 0, net.ErrClosed
	}
	r.held.Store(h)
	n, err := r.server.Write(b)
	if err != nil {
		r.endHeld()
		return n, err
	}
	// A client that has gone ends the connection only after the answer.
	<-h.answered
	return n, nil
}

func (p *Proxy) toHold(b []byte) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.holds, func(h *Held) bool { return bytes.Contains(b, h.text) })
	if i < 0 {
		return nil
	}
	h := p.holds[i]
	p.holds = slices.Delete(p.holds, i, i+1)
	return h
}

// endHeld notes that the held request has its answer, or gets none.
func (l *link) endHeld() {
	if h := l.held.Swap(nil); h != nil {
		close(h.answered)
	}
}

// answers writes the server's data to the client, unless the link drops it.
type answers struct{ *link }

func (a answers) Write(b []byte) (int, error) {
	a.proxy.wait()
	a.endHeld()
	switch {
	case a.loses.Load():
		a.cut()
		return 0, net.ErrClosed
	case a.deaf.Load(), a.halfOpen.Load():
		return len(b), nil
	}
	a.answered.Store(true)
	return a.client.Write(b)
}
