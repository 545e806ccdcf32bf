// Package checkout finds the checkout of Outmill, for commands that change its code by -overlay.
package checkout

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Dir returns the directory of the checkout in which the process runs.
func Dir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/outmill/outmill").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the checkout of Outmill; run the command inside of it: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
