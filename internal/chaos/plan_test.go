//go:build unix

package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/proxy"
)

// deed is a kind of fault.
type deed string

const (
	// kill, stop and retire act on one process: kill -9, SIGSTOP for longer than the lease, and a
	// graceful end.
	kill   deed = "kills"
	stop   deed = "stops"
	retire deed = "orderly_ends"
	// cut, deafen and hang cut all connections to the database. Before that, deafen and hang drop
	// all answers of the server: deafen for a moment, and hang for longer than the lease.
	cut    deed = "cuts"
	deafen deed = "cuts_without_answers"
	hang   deed = "hangs"
	// restart and crash act on the database's server: a graceful restart, and kill -9.
	restart deed = "server_restarts"
	crash   deed = "server_kills"
)

// deck has all faults. The plan shuffles it and takes one after the other, again and again, so
// that each fault comes soon.
var deck = []deed{kill, kill, kill, kill, stop, stop, stop, stop, retire, cut, cut, cut, deafen, deafen, hang, restart, crash}

// withoutServer is the deck of an engine that has no server.
var withoutServer = []deed{kill, kill, kill, kill, stop, stop, retire}

// plan causes the faults.
type plan struct {
	t      *testing.T
	dice   *rand.Rand
	server server
	proxy  *proxy.Proxy
	deck   []deed
	// start starts a process. The seed is for its own random numbers.
	start func(role, name string, seed uint64) *child
	seats []*seat
	count map[deed]int
	diary *os.File
}

// seat has the current process of a role. If it ends, another one takes its place.
type seat struct {
	role  string
	name  string
	heirs int
	child *child
	// wakes is the time at which the stopped child continues; zero while it runs.
	wakes time.Time
}

func (p *plan) fill() {
	// The judge of the groups that come and go counts on one process that reads for them.
	processes := map[string]int{roleWriter: 2, roleForwarder: 2, roleSubscriber: 2, roleOperator: 1}
	for _, role := range []string{roleWriter, roleForwarder, roleSubscriber, roleOperator} {
		for i := range processes[role] {
			s := &seat{role: role, name: fmt.Sprintf("%s-%d", role, i+1)}
			p.seats = append(p.seats, s)
			p.replace(s)
		}
	}
}

func (p *plan) replace(s *seat) {
	s.heirs++
	s.wakes = time.Time{}
	s.child = p.start(s.role, fmt.Sprintf("%s.%d", s.name, s.heirs), p.dice.Uint64())
}

// run causes one fault after the other until the time has passed.
func (p *plan) run(duration time.Duration) {
	end := time.Now().Add(duration)
	var deals []deed
	for {
		p.pause(500*time.Millisecond + upTo(p.dice, 2*time.Second))
		if time.Now().After(end) {
			break
		}
		if len(deals) == 0 {
			deals = slices.Clone(p.deck)
			p.dice.Shuffle(len(deals), func(i, j int) { deals[i], deals[j] = deals[j], deals[i] })
		}
		p.count[deals[0]]++
		p.do(deals[0])
		deals = deals[1:]
	}
	for _, s := range p.seats {
		p.wake(s)
	}
}

func (p *plan) do(d deed) {
	switch d {
	case kill:
		s := p.seats[p.dice.IntN(len(p.seats))]
		p.say("kill -9 %s", s.child.name)
		s.child.kill()
		p.replace(s)
	case stop:
		s := p.chooseRunning()
		length := lease + lease/3 + upTo(p.dice, lease*3/2)
		p.say("stop %s for %s", s.child.name, length)
		s.child.signal(p.t, syscall.SIGSTOP)
		s.wakes = time.Now().Add(length)
	case retire:
		s := p.chooseRunning()
		if p.proxy == nil {
			// A stopped process may hold the only write lock, and nothing continues it while
			// this waits for the end of another process.
			for _, stopped := range p.seats {
				p.wake(stopped)
			}
		}
		p.say("end %s in order", s.child.name)
		require.NoError(p.t, s.child.retire())
		p.replace(s)
	case cut:
		p.say("cut all connections")
		p.proxy.CutAll()
	case deafen:
		p.deafen(upTo(p.dice, 200*time.Millisecond))
	case hang:
		p.deafen(lease + upTo(p.dice, lease))
	case restart:
		p.say("restart the server")
		require.NoError(p.t, p.server.restart(p.t.Context()))
	case crash:
		p.say("kill -9 the server")
		require.NoError(p.t, p.server.crash(p.t.Context()))
	}
}

func (p *plan) deafen(length time.Duration) {
	p.say("drop all answers for %s, then cut all connections", length)
	p.proxy.Deafen()
	p.pause(length)
	p.proxy.CutAll()
}

// retire ends the processes of a role gracefully.
func (p *plan) retire(role string) {
	for _, s := range p.seats {
		if s.role == role {
			require.NoError(p.t, s.child.retire())
		}
	}
}

// chooseRunning chooses a seat whose process is not stopped.
func (p *plan) chooseRunning() *seat {
	running := slices.DeleteFunc(slices.Clone(p.seats), func(s *seat) bool { return !s.wakes.IsZero() })
	if len(running) == 0 {
		s := p.seats[0]
		p.wake(s)
		return s
	}
	return running[p.dice.IntN(len(running))]
}

// pause waits, and continues stopped processes when their time has come.
func (p *plan) pause(d time.Duration) {
	end := time.Now().Add(d)
	for {
		next := end
		for _, s := range p.seats {
			switch {
			case s.wakes.IsZero():
			case !time.Now().Before(s.wakes):
				p.wake(s)
			case s.wakes.Before(next):
				next = s.wakes
			}
		}
		left := time.Until(next)
		if left <= 0 && next.Equal(end) {
			return
		}
		<-time.After(left)
	}
}

func (p *plan) wake(s *seat) {
	if s.wakes.IsZero() {
		return
	}
	p.say("continue %s", s.child.name)
	s.child.signal(p.t, syscall.SIGCONT)
	s.wakes = time.Time{}
}

// say writes a line with the time to the diary.
func (p *plan) say(format string, args ...any) {
	fmt.Fprintf(p.diary, "%s %s\n", time.Now().UTC().Format("15:04:05.000000"), fmt.Sprintf(format, args...))
}

func (p *plan) String() string {
	var text strings.Builder
	for _, d := range []deed{kill, stop, retire, cut, deafen, hang, restart, crash} {
		fmt.Fprintf(&text, "%s=%d ", d, p.count[d])
	}
	return strings.TrimSpace(text.String())
}

// outage kills the broker after a time, and starts it again after length. The channel gets an
// error, or nil.
func outage(t *testing.T, broker *kafkaengine.Engine, after, length time.Duration, say func(string, ...any)) <-chan error {
	over, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		over <- beAway(t, broker, after, length, say)
	}()
	t.Cleanup(func() { <-ended })
	return over
}

func beAway(t *testing.T, broker *kafkaengine.Engine, after, length time.Duration, say func(string, ...any)) error {
	wait := func(d time.Duration) {
		select {
		case <-t.Context().Done():
		case <-time.After(d):
		}
	}
	wait(after)
	process, err := broker.Process()
	if err != nil {
		return err
	}
	say("kill -9 Kafka, for %s", length)
	if err := process.Kill(); err != nil {
		return err
	}
	wait(length)
	if conn, err := net.Dial("tcp", broker.Addr); err == nil {
		_ = conn.Close()
		return fmt.Errorf("something listens at %s while the broker is away", broker.Addr)
	}
	err = broker.StartAttached(t.Context())
	say("Kafka is back")
	return err
}
