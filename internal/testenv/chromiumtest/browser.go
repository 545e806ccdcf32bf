package chromiumtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// EnvChromium names the variable with the path of a Chromium.
const EnvChromium = "OUTMILL_TEST_CHROMIUM"

// patience is how long a test waits for the browser, on a machine that has much to do.
const patience = time.Minute

// browser is a running Chromium.
type browser struct {
	write *os.File

	mu      sync.Mutex
	next    int
	answers map[int]chan answer
	events  func(event)
	ended   chan struct{}
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// event is a message of the browser that answers nothing.
type event struct {
	Method string
	Params json.RawMessage
}

func find(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(EnvChromium); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Skip("skipped: no Chromium on PATH: install it (Debian: apt-get install chromium), or set " + EnvChromium)
	return ""
}

// start starts a Chromium with a new profile, and ends it with the test. Each host name leads to
// this machine.
func start(tb testing.TB) *browser {
	tb.Helper()
	path := find(tb)
	// Its processes may still write while it ends, which would make the cleanup of tb.TempDir fail.
	profile, err := os.MkdirTemp("", "outmill-chromium-") //nolint:usetesting // see above
	require.NoError(tb, err)
	commands, write, err := os.Pipe()
	require.NoError(tb, err)
	read, results, err := os.Pipe()
	require.NoError(tb, err)
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), path,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
		"--host-resolver-rules=MAP * 127.0.0.1", "--user-data-dir="+filepath.Join(profile, "profile"), "about:blank")
	// The protocol's pipes are the descriptors 3 and 4.
	cmd.ExtraFiles = []*os.File{commands, results}
	cmd.SysProcAttr = proc.OwnSession()
	cmd.Env = append(os.Environ(), "TMPDIR="+profile)
	require.NoError(tb, cmd.Start())
	_, _ = commands.Close(), results.Close()
	b := &browser{write: write, answers: map[int]chan answer{}, events: func(event) {}, ended: make(chan struct{})}
	go b.listen(read)
	tb.Cleanup(func() {
		_ = b.write.Close()
		proc.KillSession(cmd.Process.Pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-b.ended
		_ = read.Close()
		remove(profile)
	})
	return b
}

// remove removes a directory in which processes that are about to end may still write.
func remove(dir string) {
	for range 100 {
		_ = os.RemoveAll(dir)
		_ = proc.Wait(context.Background(), 20*time.Millisecond)
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
	}
}

// listen reads messages, which end with a zero byte.
func (b *browser) listen(from *os.File) {
	defer close(b.ended)
	messages := bufio.NewReader(from)
	for {
		text, err := messages.ReadBytes(0)
		if err != nil {
			return
		}
		var message struct {
			ID int
			event
			answer
		}
		if json.Unmarshal(text[:len(text)-1], &message) != nil {
			continue
		}
		b.mu.Lock()
		waiting, events := b.answers[message.ID], b.events
		delete(b.answers, message.ID)
		b.mu.Unlock()
		switch {
		case waiting != nil:
			waiting <- message.answer
		case message.ID == 0:
			events(message.event)
		}
	}
}

// command sends a command and decodes its result; a nil result is ignored.
func (b *browser) command(ctx context.Context, session, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got := make(chan answer, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.answers[id] = got
	text, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": session})
	if session == "" {
		text, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err == nil {
		_, err = b.write.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	case <-b.ended:
		return fmt.Errorf("%s: the browser has ended", method)
	case answer := <-got:
		switch {
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", method, answer.Error.Message)
		case result == nil:
			return nil
		case len(answer.Result) == 0:
			return errors.New(method + ": no result")
		}
		return json.Unmarshal(answer.Result, result)
	}
}
