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

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// ErrNoPgBouncer says that the machine does not have PgBouncer.
var ErrNoPgBouncer = errors.New("pgbouncer is not installed")

// PgBouncer is a running PgBouncer that pools connections to a database, by transaction
// unless a setting changes this.
type PgBouncer struct {
	// URL is the URL of the database through PgBouncer.
	URL string
	// Dir holds the configuration and the log.
	Dir string

	run *proc.Supervised
}

// StartPgBouncer starts PgBouncer on loopback in front of the database of a URL, and waits
// until it is ready. It ends with this process, even after a crash, or at End. Settings are
// pairs such as "default_pool_size=2".
func StartPgBouncer(ctx context.Context, databaseURL string, settings ...string) (*PgBouncer, error) {
	program, err := findPgBouncer()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "outmill-pgbouncer-")
	if err != nil {
		return nil, fmt.Errorf("pgbouncer: make a directory: %w", err)
	}
	b, err := startPgBouncerIn(ctx, program, dir, databaseURL, settings)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, nil
}

func startPgBouncerIn(ctx context.Context, program, dir, databaseURL string, settings []string) (*PgBouncer, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		b, err := startPgBouncerOnce(ctx, program, dir, databaseURL, settings)
		// Another process has taken the port.
		if errors.Is(err, proc.ErrEnded) && strings.Contains(err.Error(), "ddress already in use") && ctx.Err() == nil {
			continue
		}
		return b, err
	}
}

func startPgBouncerOnce(ctx context.Context, program, dir, databaseURL string, settings []string) (*PgBouncer, error) {
	port, err := proc.FreePort()
	if err != nil {
		return nil, err
	}
	config, err := pgBouncerConfig(databaseURL, port, settings)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("pgbouncer: write the configuration: %w", err)
	}
	if err := giveAway(file); err != nil {
		return nil, err
	}
	run, err := proc.Server{Dir: dir, Line: []string{program, file}, EndSignal: "KILL", Prepare: asAccount}.Supervise(ctx)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{URL: throughPort(databaseURL, port), Dir: dir, run: run}
	if err := run.AwaitReady(ctx, func(ctx context.Context) error { return ping(ctx, b.URL) }); err != nil {
		return nil, fmt.Errorf("pgbouncer: %w", errors.Join(err, run.Leave()))
	}
	return b, nil
}

// End ends PgBouncer, removes its directory and waits for that.
func (b *PgBouncer) End() { b.run.End() }

// pgBouncerConfig lets clients log in as any user, and PgBouncer as the user of the URL.
func pgBouncerConfig(databaseURL string, port int, settings []string) (string, error) {
	c, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return "", fmt.Errorf("pgbouncer: the URL of the database: %w", err)
	}
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	target := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", quoted(c.Host), c.Port, quoted(c.Database), quoted(c.User))
	if c.Password != "" {
		target += " password=" + quoted(c.Password)
	}
	text := fmt.Sprintf(`[databases]
* = %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
ignore_startup_parameters = extra_float_digits
`, target, port)
	for _, setting := range settings {
		name, value, ok := strings.Cut(setting, "=")
		if !ok || name == "" {
			return "", fmt.Errorf("pgbouncer: setting %q: want name=value", setting)
		}
		text += name + " = " + value + "\n"
	}
	return text, nil
}

func findPgBouncer() (string, error) {
	// On Debian the program is in a directory that is not in the PATH of most users.
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if file, err := exec.LookPath(name); err == nil {
			return file, nil
		}
	}
	return "", ErrNoPgBouncer
}

func throughPort(databaseURL string, port int) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return databaseURL
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	u.User = url.User(u.User.Username())
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}

func ping(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
