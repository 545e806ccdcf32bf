package mysqlengine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// EnvURL names the environment variable with the URL of a server for tests: mysql://user:password@host:port/. It may be MariaDB 10.6 or
// later, or MySQL 8.0, and its user must have the right to create and drop databases and users.
const EnvURL = "OUTMILL_TEST_MYSQL_URL"

// answersWithin limits one Check.
const answersWithin = 20 * time.Second

// ErrNoProgram says that no MariaDB is on this machine.
var ErrNoProgram = errors.New("no mariadbd is on this machine")

// programs are what a server needs. Debian has mariadbd where only root has it on PATH.
var programs = []string{"mariadbd", "mariadb-install-db"}

// FindProgram returns the paths of mariadbd and of mariadb-install-db, or ErrNoProgram.
func FindProgram() (server, install string, err error) {
	var found [2]string
	for i, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
				return "", "", fmt.Errorf("%w: %s is missing", ErrNoProgram, name)
			}
		}
		found[i] = path
	}
	return found[0], found[1], nil
}

// Find returns the URL of the server that the environment names, or "". If tests cannot use that server, it returns an error.
func Find(ctx context.Context) (string, error) {
	named := os.Getenv(EnvURL)
	if named == "" {
		return "", nil
	}
	if err := Check(ctx, named); err != nil {
		return "", fmt.Errorf("%s: %w", EnvURL, err)
	}
	return named, nil
}

// Config returns the settings of the driver for the database of a URL.
func Config(server, database string) (*mysql.Config, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("the URL of the server: %w", err)
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, database
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	return c, nil
}

// Open returns a pool for a database of the server of a URL.
func Open(server, database string) (*sql.DB, error) {
	c, err := Config(server, database)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

var versionOf = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)\..*?(MariaDB)?`)

// Check returns an error unless the server answers and has a version that the store supports.
func Check(ctx context.Context, server string) error {
	db, err := Open(server, "")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return fmt.Errorf("ask the server for its version: %w", err)
	}
	found := versionOf.FindStringSubmatch(version)
	if found == nil {
		return fmt.Errorf("the server has version %s: want MariaDB 10.6 or MySQL 8.0, or later", version)
	}
	major, _ := strconv.Atoi(found[1])
	minor, _ := strconv.Atoi(found[2])
	if major < 8 || major == 10 && minor < 6 {
		return fmt.Errorf("the server has version %s: want MariaDB 10.6 or MySQL 8.0, or later", version)
	}
	return nil
}
