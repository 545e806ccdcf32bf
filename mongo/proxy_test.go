package mongo_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy passes connections on to a server, and can cut them.
type proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu    sync.Mutex
	links map[*link]struct{}
	ended bool
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	// loses: it ends with the next word of the server's, which gets lost.
	loses atomic.Bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: target, links: map[*link]struct{}{}}
	p.work.Go(p.accept)
	t.Cleanup(p.end)
	return p
}

// url leads through the proxy, and nowhere else.
func (p *proxy) url() string {
	return "mongodb://" + p.listener.Addr().String() + "/?directConnection=true"
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	l := &link{client: client, server: server}
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(answers{l}, server)
		l.cut()
	})
	_, _ = io.Copy(server, client)
	l.cut()
	back.Wait()
}

func (p *proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *proxy) each(do func(l *link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		do(l)
	}
}

// cutAll cuts all connections.
func (p *proxy) cutAll() { p.each((*link).cut) }

// loseAnswers cuts each of the connections that there are with the server's next
// answer: what it answers was carried out, and nobody hears of it.
func (p *proxy) loseAnswers() { p.each(func(l *link) { l.loses.Store(true) }) }

func (p *proxy) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.cutAll()
	p.work.Wait()
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// answers is where a server's words go.
type answers struct{ *link }

func (a answers) Write(b []byte) (int, error) {
	if a.loses.Load() {
		a.cut()
		return 0, net.ErrClosed
	}
	return a.client.Write(b)
}
