// Package mysqlengine finds a MariaDB or a MySQL for tests, or starts the machine's MariaDB on loopback. It is for internal/testenv, for
// the program engines and for bench.
package mysqlengine

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// readyWithin limits the wait for the start of a server, which takes a second on an idle machine.
const readyWithin = time.Minute

// Engine is a server on loopback. Its files are in one directory. Use it from one goroutine at a time.
type Engine struct {
	// Dir holds the data, the log and the pid.
	proc.Daemon
	// URL is for the user root, who has all rights. It stays the same over restarts.
	URL string

	program string
	flags   []string
	port    int
}

// Prepare makes a server in dir, which must be empty or not exist. The flags are those of mariadbd.
func Prepare(ctx context.Context, dir string, flags ...string) (*Engine, error) {
	program, install, err := FindProgram()
	if err != nil {
		return nil, err
	}
	e := &Engine{program: program, flags: slices.Clone(flags)}
	e.Daemon = proc.Daemon{
		Name: "mariadb", Dir: dir, Within: readyWithin, Line: e.commandLine, Ready: e.ready, ChoosePort: e.choosePort,
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("mariadb: make a directory: %w", err)
	}
	if uid, gid, apart := account(); apart {
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, fmt.Errorf("mariadb: give a directory to the user of the server: %w", err)
		}
	}
	line := append([]string{"--no-defaults", "--datadir=" + e.dataDir(), "--tmpdir=" + dir,
		"--auth-root-authentication-method=normal", "--skip-test-db",
		"--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=32M"}, userFlag()...)
	if out, err := exec.CommandContext(ctx, install, line...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadb: make a data directory: %w: %s", err, proc.LastLine(out))
	}
	return e, e.choosePort()
}

// account is the user that the server runs as. It refuses to run as root.
func account() (uid, gid int, apart bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	found, err := user.Lookup("mysql")
	if err != nil {
		return 0, 0, false
	}
	uid, uidErr := strconv.Atoi(found.Uid)
	gid, gidErr := strconv.Atoi(found.Gid)
	return uid, gid, uidErr == nil && gidErr == nil
}

func userFlag() []string {
	if os.Getuid() != 0 {
		return nil
	}
	return []string{"--user=mysql"}
}

// ready returns an error as long as the server is not ready, or if another one answers at its port.
func (e *Engine) ready(ctx context.Context) error {
	db, err := Open(e.URL, "")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	var dir string
	if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dir); err != nil {
		return err
	}
	if filepath.Clean(dir) != filepath.Clean(e.dataDir()) {
		return fmt.Errorf("the server of %s answers at the port of %s", dir, e.dataDir())
	}
	return Check(ctx, e.URL)
}

func (e *Engine) dataDir() string { return filepath.Join(e.Dir, "data") }

// commandLine makes the server listen only on loopback. It does not wait for the disk unless a flag has it do so. A server that
// starts deletes the temporary tables in its tmpdir, also those of other servers that are in use.
func (e *Engine) commandLine() []string {
	line := []string{
		e.program, "--no-defaults", "--datadir=" + e.dataDir(), "--tmpdir=" + e.Dir, "--port=" + strconv.Itoa(e.port), "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(e.Dir, "sock"), "--skip-name-resolve", "--max-connections=600", "--innodb-buffer-pool-size=256M",
		"--innodb-log-file-size=128M", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--performance-schema=OFF",
	}
	return append(append(line, userFlag()...), e.flags...)
}

func (e *Engine) choosePort() error {
	port, err := proc.FreePort()
	if err != nil {
		return fmt.Errorf("mariadb: %w", err)
	}
	e.port = port
	e.URL = "mysql://root@" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/"
	return nil
}
