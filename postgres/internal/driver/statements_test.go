package driver_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/postgres/internal/driver"
)

var update = flag.Bool("update", false, "write testdata/statements.sql again")

// A reviewer reads all statements as PostgreSQL gets them.
func TestStatements(t *testing.T) {
	t.Parallel()
	names, texts := driver.New(nil, driver.Config{Schema: "outmill"}).Texts()
	for file, ofLog := range map[string]bool{"statements.sql": false, "log_driver.sql": true} {
		var all strings.Builder
		for _, name := range names {
			if driver.IsOfLogDriver(name) == ofLog {
				all.WriteString("-- " + name + "\n" + texts[name] + ";\n\n")
			}
		}
		requireSame(t, filepath.Join("testdata", file), all.String())
	}
}

func requireSame(t *testing.T, file, all string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(file, []byte(all), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), all, "run go test -run TestStatements -update, and read the difference")
}
