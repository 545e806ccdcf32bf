// Package house tests rules of the project: its imports, its documentation and its English.
package house

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/outmill/outmill"

func TestHouse(t *testing.T) {
	t.Parallel()

	t.Run("a user of the sqlite store and the publisher compiles neither Kafka nor test code", func(t *testing.T) {
		t.Parallel()
		unwanted := []string{
			"github.com/twmb/franz-go", "github.com/IBM/sarama", "github.com/ThreeDotsLabs/watermill-kafka",
			"github.com/ThreeDotsLabs/watermill-sql",
			"github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak", "testing",
			module + "/storetest", module + "/outmilltest", module + "/internal/testenv", module + "/kafka",
		}
		used := []string{module + "/sqlite", module + "/publisher", module + "/subscriber", module + "/forwarder", module + "/contracts"}
		for _, dep := range dependencies(t, used...) {
			for _, prefix := range unwanted {
				require.False(t, dep == prefix || strings.HasPrefix(dep, prefix+"/"), "%s is compiled into programs that do not use it", dep)
			}
		}
	})

	t.Run("a user of the forwarder and the kafka publisher compiles no store", func(t *testing.T) {
		t.Parallel()
		deps := dependencies(t, module+"/forwarder", module+"/kafka")
		require.False(t, slices.Contains(deps, module+"/sqlite"))
		require.False(t, slices.ContainsFunc(deps, func(dep string) bool { return strings.HasPrefix(dep, "modernc.org/") }))
	})

	// sarama comes with its own Kerberos, metrics and OpenTelemetry: 118 packages that a program with franz-go never calls.
	t.Run("a service with PostgreSQL and kafka compiles no sarama", func(t *testing.T) {
		t.Parallel()
		unwanted := []string{
			"github.com/IBM/sarama", "github.com/ThreeDotsLabs/watermill-kafka", "github.com/jcmturner/gokrb5", "github.com/dnwe/otelsarama",
		}
		deps := dependencies(t, module+"/postgres", module+"/publisher", module+"/subscriber", module+"/forwarder", module+"/kafka")
		require.Contains(t, deps, "github.com/twmb/franz-go/pkg/kgo")
		for _, dep := range deps {
			for _, prefix := range unwanted {
				require.False(t, strings.HasPrefix(dep, prefix), "%s is compiled into programs that use package kafka", dep)
			}
		}
	})

	t.Run("the store in memory needs nothing that is internal nor test code", func(t *testing.T) {
		t.Parallel()
		for _, dep := range dependencies(t, module+"/storetest/memstore") {
			require.False(t, strings.HasPrefix(dep, module+"/internal/"), dep)
			require.NotContains(t, []string{"testing", "github.com/stretchr/testify/require", "pgregory.net/rapid"}, dep)
		}
	})

	t.Run("the root imports nothing of the project", func(t *testing.T) {
		t.Parallel()
		for _, dep := range dependencies(t, module) {
			require.False(t, strings.HasPrefix(dep, module+"/"), dep)
		}
	})

	t.Run("the engine knows no database, and a driver does not know the engine", func(t *testing.T) {
		t.Parallel()
		databases := []string{
			"database/sql", "github.com/jackc/pgx/v5", "go.mongodb.org/mongo-driver/v2/mongo", "github.com/microsoft/go-mssqldb",
			"github.com/go-sql-driver/mysql", "modernc.org/sqlite",
		}
		deps := dependencies(t, module+"/engine")
		for _, database := range databases {
			require.NotContains(t, deps, database)
		}
		drivers, err := filepath.Glob(filepath.Join(root, "*", "internal", "driver"))
		require.NoError(t, err)
		require.NotEmpty(t, drivers)
		for _, dir := range append(drivers, filepath.Join(root, "engine", "memdriver")) {
			driver, err := filepath.Rel(root, dir)
			require.NoError(t, err)
			require.NotContains(t, dependencies(t, module+"/"+filepath.ToSlash(driver)), module+"/engine", driver)
		}
	})

	// go mod tidy keeps what the tests of imported packages need, so a test that crosses
	// engines belongs to a package that nobody imports, such as internal/allstores.
	t.Run("a user of one store downloads no driver of another", func(t *testing.T) {
		t.Parallel()
		drivers := map[string]string{
			"postgres":  "github.com/jackc/pgx/v5",
			"mongo":     "go.mongodb.org/mongo-driver/v2",
			"mysql":     "github.com/go-sql-driver/mysql",
			"sqlserver": "github.com/microsoft/go-mssqldb",
		}
		for store := range drivers {
			var own []string
			clients := []string{module + "/publisher", module + "/subscriber", module + "/forwarder", module + "/joins", module + "/contracts"}
			for _, dep := range dependencies(t, append(clients, module+"/"+store)...) {
				if dep == module || strings.HasPrefix(dep, module+"/") {
					own = append(own, dep)
				}
			}
			needed := dependencies(t, append([]string{"-test"}, own...)...)
			for other, driver := range drivers {
				if other != store {
					require.NotContains(t, needed, driver, "a test of a package that a user of %s imports", store)
				}
			}
		}
	})
}

func dependencies(t *testing.T, packages ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, packages...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.Fields(string(out))
}
