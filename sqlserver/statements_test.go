package sqlserver_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/sqlserver"
)

func TestStore_Statements(t *testing.T) {
	t.Parallel()

	// The checks of the statements (.ci/sql, hints_test.go) must have all of them.
	t.Run("each statement of the program is listed", func(t *testing.T) {
		t.Parallel()
		listed := map[string]bool{}
		for name := range sqlserver.Statements {
			listed[name] = true
		}
		require.Equal(t, declared(t), listed)
		// The file is for .ci/sql, which is not written in Go.
		if file := os.Getenv("OUTMILL_STATEMENTS_FILE"); file != "" {
			text, err := json.Marshal(sqlserver.Texts())
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, text, 0o600))
		}
	})
}

// declared returns the names of the package's constants and variables that begin with sql.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			ast.Inspect(declaration, func(n ast.Node) bool {
				if spec, is := n.(*ast.ValueSpec); is && strings.HasPrefix(spec.Names[0].Name, "sql") {
					names[spec.Names[0].Name] = true
				}
				return true
			})
		}
	}
	return names
}
