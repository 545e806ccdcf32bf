package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChecks shows that each check notices a fault.
func TestChecks(t *testing.T) {
	const dir = "../../cmd/outmill/deploy"
	for _, tc := range []struct {
		name, file, old, new string
		check                func(file string) error
	}{
		{"a misspelt instruction", "Dockerfile", "WORKDIR", "WORKDIRS", dockerfile},
		{"root", "Dockerfile", "USER 65532:65532", "USER root", dockerfile},
		{"a stage that does not exist", "Dockerfile", "--from=build", "--from=builder", dockerfile},
		{"a shell in distroless", "Dockerfile", "EXPOSE 8080", "RUN true", dockerfile},
		{"a misspelt key of compose", "compose.yaml", "depends_on:", "depend_on:", compose},
		{"a service that does not exist", "compose.yaml", "      kafka:\n        condition", "      kafca:\n        condition", compose},
		{"no Dockerfile at that place", "compose.yaml", "dockerfile: cmd", "dockerfile: cmds", compose},
		{"a misspelt field of Kubernetes", "kubernetes.yaml", "livenessProbe", "liveProbe", kubernetes},
		{"a number where a text belongs", "kubernetes.yaml", "name: http\n", "name: 80\n", kubernetes},
		{"a selector that selects nothing", "kubernetes.yaml", "matchLabels:\n      app.kubernetes.io/name: outmill-forward",
			"matchLabels:\n      app.kubernetes.io/name: forward", kubernetes},
		{"a probe of no port", "kubernetes.yaml", "port: http\n            periodSeconds: 10\n            timeout",
			"port: https\n            periodSeconds: 10\n            timeout", kubernetes},
		{"a scrape of no port", "kubernetes.yaml", `prometheus.io/port: "8080"`, `prometheus.io/port: "9090"`, kubernetes},
		{"pods that nobody scrapes", "kubernetes.yaml", `prometheus.io/scrape: "true"`, `prometheus.io/scrape: "yes"`, kubernetes},
		{"a config map that is not there", "kubernetes.yaml", "configMap:\n            name: outmill-forward",
			"configMap:\n            name: outmill", kubernetes},
	} {
		t.Run(tc.name+" is noticed", func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), tc.old) {
				t.Fatalf("%s has no %q", tc.file, tc.old)
			}
			// Next to the original, so that relative paths stay right.
			changed, err := os.CreateTemp(dir, "changed-*-"+tc.file)
			if err != nil {
				t.Fatal(err)
			}
			defer os.Remove(changed.Name())
			if _, err := changed.WriteString(strings.Replace(string(text), tc.old, tc.new, 1)); err != nil {
				t.Fatal(err)
			}
			if err := changed.Close(); err != nil {
				t.Fatal(err)
			}
			if err := tc.check(changed.Name()); err == nil {
				t.Fatal("no error")
			} else {
				t.Log(err)
			}
		})
	}
}
