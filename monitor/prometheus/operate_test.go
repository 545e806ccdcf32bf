package prometheus_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/storekit"
)

// promtool runs Prometheus's own checker, or skips the test.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("skipped: promtool is not on PATH; it is in Debian's package prometheus")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %s: %s", strings.Join(args, " "), said)
}

type alert struct {
	Name        string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), file)
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	read(t, "alerts.yaml", &file)
	require.Len(t, file.Groups, 1)
	require.NotEmpty(t, file.Groups[0].Rules)
	return file.Groups[0].Rules
}

// panels returns the expressions of the dashboard, by the title of their panel.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var file struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &file))
	found := map[string][]string{}
	for _, panel := range file.Panels {
		if panel.Type == "row" {
			continue
		}
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			found[panel.Title] = append(found[panel.Title], target.Expr)
		}
	}
	require.NotEmpty(t, found)
	return found
}

// scrape returns all metrics, each with all its labels: messages are published, handled and
// refused.
func scrape(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	store := open(t, "main")
	registry, metrics := start(t, monitor.MetricsConfig{}, store)
	useAll(t, metrics, store)
	failing, err := metrics.Publisher("forward", &broker{})
	require.NoError(t, err)
	list := messages(2)
	require.Error(t, failing.(storekit.BatchPublisher).PublishBatch(t.Context(), []storekit.Outgoing{
		{Topic: "a", Message: list[0]}, {Topic: "b", Message: list[1]},
	}))
	families, err := client.Gatherer(registry).Gather()
	require.NoError(t, err)
	return families
}

func TestAlerts(t *testing.T) {
	t.Parallel()

	t.Run("promtool accepts the rules", func(t *testing.T) {
		t.Parallel()
		promtool(t, nil, "check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml")
	})

	t.Run("the rules pass their tests", func(t *testing.T) {
		t.Parallel()
		promtool(t, nil, "test", "rules", "alerts_test.yaml")
	})

	t.Run("each alert fires in a test", func(t *testing.T) {
		t.Parallel()
		var file struct {
			Tests []struct {
				Cases []struct {
					Alert string `yaml:"alertname"`
					Fires []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		read(t, "alerts_test.yaml", &file)
		fires := map[string]bool{}
		for _, test := range file.Tests {
			for _, c := range test.Cases {
				fires[c.Alert] = fires[c.Alert] || len(c.Fires) > 0
			}
		}
		for _, a := range alerts(t) {
			require.True(t, fires[a.Name], "%s fires in no test", a.Name)
		}
	})

	t.Run("each alert has a severity, a summary and the remedy that the page of metrics has", func(t *testing.T) {
		t.Parallel()
		page, err := os.ReadFile("../../docs/metrics.md")
		require.NoError(t, err)
		rows := regexp.MustCompile(`(?m)^\| .(Outmill\w+). \|.*$`).FindAllString(string(page), -1)
		var want []string
		for _, a := range alerts(t) {
			require.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"], a.Name)
			require.NotEmpty(t, a.Annotations["summary"], a.Name)
			want = append(want, fmt.Sprintf("| `%s` | %s | `%s` | %s | %s |", a.Name, a.Labels["severity"], a.Expr,
				cmp.Or(a.For, "at once"), a.Annotations["remedy"]))
		}
		require.Equal(t, want, rows)
	})
}

func TestDashboard(t *testing.T) {
	t.Parallel()

	t.Run("promtool accepts each expression", func(t *testing.T) {
		t.Parallel()
		type rule struct {
			Record string `yaml:"record"`
			Expr   string `yaml:"expr"`
		}
		var rules []rule
		for title, list := range panels(t) {
			for i, expr := range list {
				// The rule's name must be one of a metric, and say which panel it is.
				name := fmt.Sprintf("panel:%s:%d", regexp.MustCompile(`\W`).ReplaceAllString(title, "_"), i)
				rules = append(rules, rule{name, filled(expr)})
			}
		}
		text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "rules.yaml")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		promtool(t, nil, "check", "rules", file)
	})

	t.Run("shows each metric", func(t *testing.T) {
		t.Parallel()
		shown := map[string]bool{}
		for _, list := range panels(t) {
			for _, expr := range list {
				for _, name := range metricsOf(expr) {
					shown[name] = true
				}
			}
		}
		for _, family := range scrape(t) {
			require.True(t, shown[family.GetName()], "%s is in no panel", family.GetName())
		}
	})
}

// filled replaces the variables that Grafana fills in.
func filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$store", ".*", "$group", ".*", "$topic", ".*").Replace(expr)
}

// metricsOf returns the names of the metrics in an expression, without the suffixes of histograms.
func metricsOf(expr string) (names []string) {
	for _, name := range regexp.MustCompile(`\boutmill_\w+`).FindAllString(expr, -1) {
		names = append(names, regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, ""))
	}
	return names
}

// labelsOf returns the labels that an expression selects or groups by.
func labelsOf(expr string) (names []string) {
	for _, group := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		names = append(names, strings.Split(strings.ReplaceAll(group[1], " ", ""), ",")...)
	}
	for _, selected := range regexp.MustCompile(`(\w+)(?:=~|!=|=)"`).FindAllStringSubmatch(expr, -1) {
		names = append(names, selected[1])
	}
	return names
}

func TestScrape(t *testing.T) {
	t.Parallel()

	t.Run("promtool finds nothing to object to", func(t *testing.T) {
		t.Parallel()
		var text bytes.Buffer
		for _, family := range scrape(t) {
			_, err := expfmt.MetricFamilyToText(&text, family)
			require.NoError(t, err)
		}
		promtool(t, text.Bytes(), "check", "metrics")
	})

	t.Run("each metric and label that alerts and dashboard use is in it", func(t *testing.T) {
		t.Parallel()
		labels := map[string][]string{}
		for _, family := range scrape(t) {
			labels[family.GetName()] = []string{"le"}
			for _, sample := range family.GetMetric() {
				for _, label := range sample.GetLabel() {
					labels[family.GetName()] = append(labels[family.GetName()], label.GetName())
				}
			}
		}
		used := panels(t)
		for _, a := range alerts(t) {
			used[a.Name] = []string{a.Expr}
		}
		for where, list := range used {
			for _, expr := range list {
				names := metricsOf(expr)
				require.NotEmpty(t, names, "%s: %s", where, expr)
				for _, name := range names {
					require.Contains(t, labels, name, where)
				}
				// A handler's failures have the label error_type, and it failed in no test here.
				for _, label := range labelsOf(expr) {
					require.True(t, label == "error_type" || slices.Contains(labels[names[0]], label), "%s: %s has no label %s", where, names[0], label)
				}
			}
		}
	})
}
