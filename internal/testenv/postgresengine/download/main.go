// Command download downloads the programs of a PostgreSQL release.
//
//	go run ./internal/testenv/postgresengine/download 17.5.0 DIR
//
// Afterwards they are in DIR/postgres. It is a separate program so that no test waits for a
// network that does not answer, and so that its dependencies do not make test binaries
// larger.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// within limits the download, because the process that waits for it may have ended.
const within = 4 * time.Minute

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: download RELEASE DIR")
		os.Exit(2)
	}
	time.AfterFunc(within, func() {
		fmt.Fprintln(os.Stderr, "download: not done within", within)
		os.Exit(1)
	})
	if err := download(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "download:", err)
		os.Exit(1)
	}
}

// download makes the module start with a data directory that holds only a version: the
// module downloads, unpacks, and then fails. It has no other way to only download, and a
// complete start would fail as root.
func download(release, dir string) error {
	data, programs := filepath.Join(dir, "data"), filepath.Join(dir, "postgres")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	major, _, _ := strings.Cut(release, ".")
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major+"\n"), 0o600); err != nil {
		return err
	}
	failed := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.PostgresVersion(release)).
		Port(0).
		CachePath(filepath.Join(dir, "cache")).
		RuntimePath(filepath.Join(dir, "run")).
		DataPath(data).
		BinariesPath(programs).
		Logger(io.Discard)).Start()
	if _, err := os.Stat(filepath.Join(programs, "bin", "postgres")); err != nil {
		return fmt.Errorf("PostgreSQL %s: %w", release, failed)
	}
	return nil
}
