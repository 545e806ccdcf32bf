package postgresengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// releases are the releases to download for each major version.
var releases = map[string]string{
	"14": "14.18.0",
	"15": "15.13.0",
	"16": "16.9.0",
	"17": "17.5.0",
	"18": "18.6.0",
}

// newest is the version to download if any version is sufficient.
const newest = "17"

// Binaries returns the directory with the programs of the machine's newest PostgreSQL. If
// the machine has none, it downloads them to a cache.
func Binaries(ctx context.Context) (string, error) {
	best := installation{major: oldest - 1}
	for _, i := range installed(ctx) {
		if i.major > best.major {
			best = i
		}
	}
	if best.bin != "" {
		return best.bin, nil
	}
	bin, err := Download(ctx, releases[newest])
	if err != nil {
		return "", fmt.Errorf("no PostgreSQL on this machine, and %w", err)
	}
	return bin, nil
}

// BinariesOf is Binaries for a version. For a major version such as "16" it uses the
// machine's programs or else downloads them; for a release such as "16.9.0" it always
// downloads them.
func BinariesOf(ctx context.Context, version string) (string, error) {
	if strings.Contains(version, ".") {
		return Download(ctx, version)
	}
	release, ok := releases[version]
	if !ok {
		return "", fmt.Errorf("no release of PostgreSQL %q is known: name one in full, such as 17.5.0", version)
	}
	for _, i := range installed(ctx) {
		if strconv.Itoa(i.major) == version {
			return i.bin, nil
		}
	}
	return Download(ctx, release)
}

// installation is a directory with the programs of a major version.
type installation struct {
	bin   string
	major int
}

func installed(ctx context.Context) []installation {
	var all []installation
	for _, bin := range candidates(ctx) {
		if major, err := majorOf(ctx, bin); err == nil {
			all = append(all, installation{bin, major})
		}
	}
	return all
}

func candidates(ctx context.Context) []string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if file, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func majorOf(ctx context.Context, bin string) (int, error) {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return 0, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return 0, err
	}
	found := versionText.FindSubmatch(out)
	if found == nil {
		return 0, errors.New("not PostgreSQL")
	}
	return strconv.Atoi(string(found[1]))
}
