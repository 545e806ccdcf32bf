// Package postgresengine finds a PostgreSQL server for tests, or starts one on
// loopback, and PgBouncer in front of it. It is for internal/testenv and for
// the program engines next to it.
package postgresengine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// readyWithin limits the wait for the start of a server, which takes 0.2 s on an idle
// machine.
const readyWithin = time.Minute

// Mode is the way in which a server is asked to stop.
type Mode syscall.Signal

const (
	// Fast ends all sessions, rolls their transactions back and shuts down in
	// order.
	Fast = Mode(syscall.SIGINT)
	// Immediate ends all processes at once: the next start recovers from the log.
	Immediate = Mode(syscall.SIGQUIT)
)

// Signal returns the signal to send to the server's first process.
func (m Mode) Signal() os.Signal { return syscall.Signal(m) }

// Engine is a server on loopback. Its files are in one directory. Use it from one goroutine
// at a time.
type Engine struct {
	// URL is for the superuser and the database "postgres". It stays the same
	// over restarts.
	URL string
	// Dir holds the data, the log and the pid.
	Dir string

	bin string
	// started says that the server has been ready once. Only before that may its port change.
	started bool
	run     *proc.Supervised
}

// Prepare makes a database cluster in dir, which must be empty or not exist, with the
// programs in bin. Settings are pairs such as "fsync=on", and override the defaults for
// tests.
func Prepare(ctx context.Context, bin, dir string, settings ...string) (*Engine, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	e := &Engine{Dir: dir, bin: bin}
	config, err := configuration(settings)
	if err != nil {
		return nil, err
	}
	if err := e.initdb(ctx); err != nil {
		return nil, err
	}
	if err := appendTo(filepath.Join(e.dataDir(), "postgresql.conf"), config); err != nil {
		return nil, err
	}
	return e, e.choosePort()
}

// Start starts the server so that it ends with this process, even after a crash, or at End,
// and waits until it is ready. It may be called again after Stop and Kill; the port and the
// data stay the same.
func (e *Engine) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := e.startOnce(ctx)
		if err == nil {
			e.started = true
			return nil
		}
		if err := e.mayTryAgain(ctx, err); err != nil {
			return err
		}
	}
}

func (e *Engine) startOnce(ctx context.Context) error {
	if err := e.run.Leave(); err != nil {
		return err
	}
	run, err := e.server().Supervise(ctx)
	if err != nil {
		return err
	}
	e.run = run
	return e.run.AwaitReady(ctx, e.checkReady)
}

// mayTryAgain returns nil if another process has prevented the start, and the reason is
// transient.
func (e *Engine) mayTryAgain(ctx context.Context, err error) error {
	if !errors.Is(err, proc.ErrEnded) {
		return err
	}
	log := proc.LastLines(e.LogFile())
	switch {
	case strings.Contains(log, "could not create any TCP/IP sockets") && !e.started:
		return e.choosePort()
	case strings.Contains(log, "is still in use"):
		// The child processes of a killed server take a moment to end.
		return proc.Wait(ctx, 10*time.Millisecond)
	}
	return err
}

// Stop asks the server to stop and waits until it has.
func (e *Engine) Stop(ctx context.Context, mode Mode) error {
	return e.run.Stop(ctx, syscall.Signal(mode))
}

// Kill kills the server's first process, as kill -9 does, and waits for its
// end. Its other processes end by themselves, soon after.
func (e *Engine) Kill(ctx context.Context) error {
	return e.run.Stop(ctx, syscall.SIGKILL)
}

// Restart stops the server and starts it again.
func (e *Engine) Restart(ctx context.Context, mode Mode) error {
	if err := e.Stop(ctx, mode); err != nil {
		return err
	}
	return e.Start(ctx)
}

// End ends a server of Start, if it still runs, removes its directory, and waits until both
// are done.
func (e *Engine) End() {
	if e.run == nil {
		_ = os.RemoveAll(e.Dir)
		return
	}
	e.run.End()
	e.run = nil
}

// StartDetached starts the server in the background, so that it outlives this process, and
// waits until it is ready. Its pid is in PidFile.
func (e *Engine) StartDetached(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := e.server().StartDetached(ctx, e.checkReady); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// checkReady first reads the server's own status, because another server may have taken the
// port and answer there.
func (e *Engine) checkReady(ctx context.Context) error {
	state, err := os.ReadFile(filepath.Join(e.dataDir(), "postmaster.pid"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(state), "\nready") {
		return errors.New("it is starting")
	}
	return Check(ctx, e.URL)
}

// PidFile returns the file with the pid of the server.
func (e *Engine) PidFile() string { return e.server().PidFile() }

// LogFile returns the file with the server's output since its last start.
func (e *Engine) LogFile() string { return e.server().LogFile() }

func (e *Engine) dataDir() string { return filepath.Join(e.Dir, "data") }

// server also removes SysV shared memory, which a killed server would leave until the
// machine restarts.
func (e *Engine) server() proc.Server {
	return proc.Server{
		Dir:       e.Dir,
		Line:      e.commandLine(),
		EndSignal: "QUIT",
		Prepare:   asAccount,
		TidyUp:    `[ -e data/postmaster.pid ] && ipcrm -m $(sed -n 7p data/postmaster.pid | awk '{print $2}')`,
	}
}

func (e *Engine) commandLine() []string {
	address, err := url.Parse(e.URL)
	if err != nil {
		panic("postgres: a URL made here is none: " + err.Error())
	}
	return []string{filepath.Join(e.bin, "postgres"), "-D", e.dataDir(), "-p", address.Port()}
}

func (e *Engine) choosePort() error {
	port, err := proc.FreePort()
	if err != nil {
		return err
	}
	e.URL = serverURL(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return nil
}

func (e *Engine) initdb(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(e.bin, "initdb"), "-D", e.dataDir(), "-U", "postgres",
		"--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync")
	cmd.Dir = e.Dir
	asAccount(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("postgres: make a database cluster: %w: %s", err, proc.LastLine(out))
	}
	return nil
}

func configuration(settings []string) (string, error) {
	// Dynamic shared memory in files of the data directory is removed with the directory, even
	// after kill -9.
	text := `
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
dynamic_shared_memory_type = mmap
shared_buffers = 64MB
max_connections = 300
max_prepared_transactions = 10
fsync = off
full_page_writes = off
synchronous_commit = on
autovacuum = on
`
	for _, setting := range settings {
		name, value, ok := strings.Cut(setting, "=")
		if !ok || name == "" {
			return "", fmt.Errorf("postgres: setting %q: want name=value", setting)
		}
		text += name + " = '" + strings.ReplaceAll(value, "'", "''") + "'\n"
	}
	return text, nil
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("postgres: write the configuration: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("postgres: write the configuration: %w", err)
	}
	return nil
}
