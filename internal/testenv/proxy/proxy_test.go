package proxy_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that reports each line on heard and then sends it back.
func echo(t *testing.T) (addr string, heard <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	lines := make(chan string, 10)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				for words := bufio.NewScanner(conn); words.Scan(); {
					lines <- words.Text()
					_, _ = io.WriteString(conn, words.Text()+"\n")
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		work.Wait()
	})
	return listener.Addr().String(), lines
}

// talk is a connection for sending a line and reading its answer.
type talk struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

func talkTo(t *testing.T, addr string) talk {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return talk{t, conn, bufio.NewReader(conn)}
}

func (c talk) say(line string) {
	c.t.Helper()
	_, err := io.WriteString(c, line+"\n")
	require.NoError(c.t, err)
}

func (c talk) hear(line string) {
	c.t.Helper()
	answer, err := c.answers.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, line+"\n", answer)
}

func (c talk) hearTheEnd() {
	c.t.Helper()
	answer, err := c.answers.ReadString('\n')
	require.Error(c.t, err)
	require.Empty(c.t, answer)
}

func TestProxy(t *testing.T) {
	t.Parallel()

	t.Run("a proxy cuts the existing connections and accepts new ones", func(t *testing.T) {
		t.Parallel()
		addr, heard := echo(t)
		p := proxy.New(t, addr)
		first := talkTo(t, p.Addr())
		first.say("one")
		require.Equal(t, "one", <-heard)
		first.hear("one")
		p.CutAll()
		first.hearTheEnd()
		second := talkTo(t, p.Addr())
		second.say("two")
		second.hear("two")
	})

	t.Run("a proxy that refuses takes connections again at its address", func(t *testing.T) {
		t.Parallel()
		addr, heard := echo(t)
		p := proxy.New(t, addr)
		first := talkTo(t, p.Addr())
		p.Refuse()
		first.hearTheEnd()
		_, err := net.Dial("tcp", p.Addr())
		require.Error(t, err)
		p.Return(t)
		second := talkTo(t, p.Addr())
		second.say("two")
		require.Equal(t, "two", <-heard)
		second.hear("two")
	})

	t.Run("a half-open connection carries nothing and does not end, and new ones work", func(t *testing.T) {
		t.Parallel()
		addr, heard := echo(t)
		p := proxy.New(t, addr)
		first := talkTo(t, p.Addr())
		first.say("one")
		require.Equal(t, "one", <-heard)
		first.hear("one")
		p.HalfOpen()
		first.say("lost")
		second := talkTo(t, p.Addr())
		second.say("two")
		require.Equal(t, "two", <-heard)
		second.hear("two")
		require.NoError(t, first.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := first.answers.ReadByte()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})

	t.Run("a proxy counts how often a client waits for an answer, and not how often it writes", func(t *testing.T) {
		t.Parallel()
		addr, heard := echo(t)
		p := proxy.New(t, addr)
		for range 2 {
			c := talkTo(t, p.Addr())
			c.say("one")
			require.Equal(t, "one", <-heard)
			c.hear("one")
		}
		require.Equal(t, 2, p.RoundTrips())
		c := talkTo(t, p.Addr())
		c.say("two\nthree")
		require.Equal(t, "two", <-heard)
		c.hear("two")
		require.Equal(t, "three", <-heard)
		c.hear("three")
		require.Equal(t, 3, p.RoundTrips())
	})

	t.Run("a proxy drops the answers to requests that the server got", func(t *testing.T) {
		t.Parallel()
		for name, spoil := range map[string]func(*proxy.Proxy){
			"until it cuts":    (*proxy.Proxy).Deafen,
			"and cuts at once": (*proxy.Proxy).LoseAnswers,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				addr, heard := echo(t)
				p := proxy.New(t, addr)
				c := talkTo(t, p.Addr())
				c.say("one")
				c.hear("one")
				spoil(p)
				c.say("two")
				require.Equal(t, "one", <-heard)
				require.Equal(t, "two", <-heard)
				if name == "until it cuts" {
					require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
					_, err := c.answers.ReadByte()
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
					require.NoError(t, c.SetReadDeadline(time.Time{}))
					p.CutAll()
				}
				c.hearTheEnd()
			})
		}
	})

	t.Run("a proxy holds a request back and delivers it although its client has gone", func(t *testing.T) {
		t.Parallel()
		addr, heard := echo(t)
		p := proxy.New(t, addr)
		held := p.Hold("late")
		late := talkTo(t, p.Addr())
		late.say("late")
		<-held.Came()
		require.NoError(t, late.Close())
		other := talkTo(t, p.Addr())
		other.say("soon")
		other.hear("soon")
		require.Equal(t, "soon", <-heard)
		held.Deliver()
		require.Equal(t, "late", <-heard)
		other.say("late")
		other.hear("late")
	})

	t.Run("a proxy forgets a request that no one delivers", func(t *testing.T) {
		t.Parallel()
		addr, _ := echo(t)
		p := proxy.New(t, addr)
		held := p.Hold("late")
		late := talkTo(t, p.Addr())
		late.say("late")
		<-held.Came()
	})

	t.Run("a proxy to an unavailable server closes connections at once", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		talkTo(t, proxy.New(t, listener.Addr().String()).Addr()).hearTheEnd()
	})
}

func TestProxy_Delay(t *testing.T) {
	t.Parallel()

	t.Run("a proxy delays data in both directions, and carries it when the delay ends", func(t *testing.T) {
		t.Parallel()
		addr, heard := echo(t)
		p := proxy.New(t, addr)
		first := talkTo(t, p.Addr())
		first.say("quick")
		require.Equal(t, "quick", <-heard)
		first.hear("quick")
		const late = 30 * time.Millisecond
		p.Delay(late)
		began := time.Now()
		first.say("late")
		require.Equal(t, "late", <-heard)
		first.hear("late")
		require.GreaterOrEqual(t, time.Since(began), 2*late)
		p.Delay(time.Hour)
		first.say("held")
		second := talkTo(t, p.Addr())
		second.say("held too")
		require.Empty(t, heard)
		p.Delay(0)
		require.ElementsMatch(t, []string{"held", "held too"}, []string{<-heard, <-heard})
		first.hear("held")
		second.hear("held too")
	})
}
