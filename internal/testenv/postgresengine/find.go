package postgresengine

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// EnvURL names the environment variable with the URL of a server for tests:
// postgres://user:password@host:port/database. The user must be a superuser.
const EnvURL = "OUTMILL_TEST_POSTGRES_URL"

// DefaultAddr is the address at which Find looks for a server of this machine.
const DefaultAddr = "127.0.0.1:5432"

const (
	// answersWithin limits one Check.
	answersWithin = 20 * time.Second
	// oldest is the first version that the project supports.
	oldest = 14
)

// Find returns the URL of the server that the environment names, or else of a server that
// listens at DefaultAddr and accepts the user postgres without a password, or "". If the
// environment names a server that does not answer, it returns an error.
func Find(ctx context.Context) (string, error) {
	if named := os.Getenv(EnvURL); named != "" {
		if err := Check(ctx, named); err != nil {
			return "", fmt.Errorf("%s: %w", EnvURL, err)
		}
		return named, nil
	}
	if found := serverURL(DefaultAddr); Check(ctx, found) == nil {
		return found, nil
	}
	return "", nil
}

// Check returns an error unless tests can use the server: it must answer, have version 14
// or later, and the user must be a superuser.
func Check(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var version, superuser string
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version_num'), current_setting('is_superuser')").Scan(&version, &superuser)
	if err != nil {
		return fmt.Errorf("ask PostgreSQL for its version: %w", err)
	}
	if number, err := strconv.Atoi(version); err != nil || number < oldest*10_000 {
		return fmt.Errorf("the server has version number %s: tests require PostgreSQL %d or later", version, oldest)
	}
	if superuser != "on" {
		return fmt.Errorf("user %s is not a superuser: tests create databases and read all sessions", conn.Config().User)
	}
	return nil
}

func serverURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}
