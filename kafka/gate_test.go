package kafka_test

import (
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outmill/outmill/internal/testenv/kafkatest"
)

// gate is a proxy for a broker. While it is shut, requests wait.
type gate struct {
	// held receives when a request waits.
	held chan struct{}

	mu   sync.Mutex
	open chan struct{}
}

func newGate() *gate {
	g := &gate{held: make(chan struct{}, 1), open: make(chan struct{})}
	close(g.open)
	return g
}

// shut shuts the gate. The function that it returns opens it again.
func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	g.open = closed
	return sync.OnceFunc(func() { close(closed) })
}

func (g *gate) pass() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return
	default:
	}
	select {
	case g.held <- struct{}{}:
	default:
	}
	<-open
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l gatedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return gatedConn{conn, l.gate}, err
}

type gatedConn struct {
	net.Conn
	gate *gate
}

func (c gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.pass()
	return n, err
}

// gatedKafka starts a fake Kafka with a gate before each of its brokers.
func gatedKafka(t *testing.T, nodes int, opts ...kfake.Opt) (kafkatest.Broker, []*gate) {
	t.Helper()
	var gates []*gate
	listen := func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		gates = append(gates, newGate())
		return gatedListener{l, gates[len(gates)-1]}, err
	}
	broker := kafkatest.FakeWithoutAutoTopics(t, append(opts, kfake.NumBrokers(nodes), kfake.ListenFn(listen))...)
	return broker, gates
}
