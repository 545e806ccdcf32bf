package main

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKill(t *testing.T) {
	t.Parallel()

	t.Run("a tool that is killed again and again moves each message once", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			enveloped, queue, elsewhere bool
		}{
			"enveloped, in one database":     {enveloped: true},
			"plain, in one database":         {},
			"a queue, in one database":       {queue: true},
			"enveloped, to another database": {enveloped: true, elsewhere: true},
			"a queue, to another database":   {queue: true, elsewhere: true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				to := w
				args := w.sourceArgs("-topic", "old", "-batch", "20")
				if c.elsewhere {
					to = newWorld(t)
					args = append(args, "-store", to.url)
				}
				destination := "old"
				if c.enveloped {
					destination, args = "orders", append(args, "-enveloped")
				}
				if c.queue {
					args = append(args, "-queue")
					w.createQueue(t, "old")
				} else {
					w.createLog(t, "old", "")
				}
				write := func(tx *sql.Tx, id string) {
					switch {
					case c.enveloped:
						publishEnveloped(t, tx, "old", destination, msg(id))
					case c.queue:
						publishOld(t, tx, writerToQueue{}, "old", msg(id))
					default:
						publishOld(t, tx, oldSchema, "old", msg(id))
					}
				}
				// Writers that run far ahead of the tool leave more than it moves in the time of a test.
				ahead := &lead{room: make(chan struct{}, 500)}
				writers := writeAhead(t, w, 2, 100, ahead, write)
				killAgainAndAgain(t, to, ahead, args, destination, 5)
				written := writers.stop()
				output, err := runOnce(t, args)
				require.NoError(t, err, output)
				requireEachOnce(t, written, to.outbox(t, destination))
				if !c.elsewhere {
					require.Contains(t, output, "repeated=0 skipped=0 left=0")
				}
			})
		}
	})

	t.Run("a tool that is told to stop leaves no half of a batch", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "orders", "")
		want := ids("a", 400)
		w.in(t, func(tx *sql.Tx) bool {
			for _, id := range want {
				publishOld(t, tx, oldSchema, "orders", msg(id))
			}
			return true
		})
		stops := 0
		for len(w.outbox(t, "orders")) < len(want) {
			before := len(w.outbox(t, "orders"))
			tl := start(t, w.sourceArgs("-topic", "orders", "-batch", "50"))
			require.Eventually(t, func() bool { return len(w.outbox(t, "orders")) > before }, patience, tick)
			tl.stop()
			require.NoError(t, <-tl.ended)
			stops++
			require.Contains(t, tl.says.String(), fmt.Sprintf("moved=%d ", len(w.outbox(t, "orders"))-before), "the count is right")
		}
		require.Equal(t, want, slices.Clip(w.outbox(t, "orders")))
		t.Logf("stopped %d times", stops)
	})
}

// writing holds the messages that writers have committed during the test.
type writing struct {
	enough  chan struct{}
	ahead   *lead
	finish  func()
	working sync.WaitGroup

	mu        sync.Mutex
	committed map[string][]string
}

// writeInBackground starts writers. Each publishes at least atLeast messages and continues until it
// is stopped. Every seventh message is in a transaction that is rolled back.
func writeInBackground(t *testing.T, w *world, writers, atLeast int, write func(tx *sql.Tx, id string)) *writing {
	return writeAhead(t, w, writers, atLeast, nil, write)
}

// writeAhead is writeInBackground with a limit of the committed messages that are not moved; nil is no
// limit.
func writeAhead(t *testing.T, w *world, writers, atLeast int, ahead *lead, write func(tx *sql.Tx, id string)) *writing {
	wr := &writing{enough: make(chan struct{}), ahead: ahead, committed: map[string][]string{}}
	wr.finish = sync.OnceFunc(func() { close(wr.enough) })
	for writer := range writers {
		key := fmt.Sprintf("w%d", writer)
		wr.working.Go(func() {
			for i := 0; i < atLeast || !wr.stopped(); i++ {
				id := fmt.Sprintf("%s/%05d", key, i)
				commit := i%7 != 6
				w.in(t, func(tx *sql.Tx) bool { write(tx, id); return commit })
				if commit {
					wr.note(key, id)
					wr.ahead.committed(wr.enough)
				}
			}
		})
	}
	t.Cleanup(func() { wr.stop() })
	return wr
}

func (wr *writing) stopped() bool {
	select {
	case <-wr.enough:
		return true
	default:
		return false
	}
}

func (wr *writing) note(key, id string) {
	wr.mu.Lock()
	defer wr.mu.Unlock()
	wr.committed[key] = append(wr.committed[key], id)
}

// lead is how far the writers are ahead of the tool.
type lead struct {
	// room has an entry for each committed message that is not known as moved.
	room  chan struct{}
	moved int
}

// committed waits until there is room for one more message, or until the writers stop.
func (l *lead) committed(stop <-chan struct{}) {
	if l == nil {
		return
	}
	select {
	case l.room <- struct{}{}:
	case <-stop:
	}
}

// movedTo makes room for the messages that are moved since the last call.
func (l *lead) movedTo(moved int) {
	for l.moved < moved {
		select {
		case <-l.room:
			l.moved++
		default:
			return
		}
	}
}

// stop returns the committed messages, by key.
func (wr *writing) stop() map[string][]string {
	wr.finish()
	wr.working.Wait()
	return wr.committed
}

// requireEachOnce requires that the messages of each key are in order, and that none is lost or
// doubled.
func requireEachOnce(t *testing.T, want map[string][]string, got []string) {
	t.Helper()
	total := 0
	for key, written := range want {
		require.Equal(t, written, ofKey(got, key))
		total += len(written)
	}
	require.Len(t, got, total)
}

// killAgainAndAgain kills the tool repeatedly, each time after it has moved a random number of
// messages.
func killAgainAndAgain(t *testing.T, to *world, ahead *lead, args []string, destination string, kills int) {
	t.Helper()
	for range kills {
		before := len(to.outbox(t, destination))
		enough := before + 1 + rand.IntN(60)
		child := startChild(t, args)
		require.Eventually(t, func() bool {
			moved := len(to.outbox(t, destination))
			ahead.movedTo(moved)
			return moved >= enough
		}, patience, tick, "the tool moves nothing: %s", child.says)
		child.kill(t)
	}
}

type child struct {
	cmd  *exec.Cmd
	says *says
}

func startChild(t *testing.T, args []string) *child {
	t.Helper()
	c := &child{exec.Command(os.Args[0]), &says{}}
	c.cmd.Env = append(os.Environ(), childArgs+"="+strings.Join(args, "\n"))
	c.cmd.Stdout, c.cmd.Stderr = c.says, c.says
	// The tool ends with this process, because its standard input ends.
	_, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Kill(), c.says)
	var exit *exec.ExitError
	require.True(t, errors.As(c.cmd.Wait(), &exit))
	require.True(t, exit.Sys().(syscall.WaitStatus).Signaled(), "it ended by itself: %s", c.says)
}
