package postgresengine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outmill/outmill/internal/testenv/certificate"
)

// UseTLS restarts the server with a certificate, which it shows to clients that request
// TLS. Other clients connect without TLS, as before.
func (e *Engine) UseTLS(ctx context.Context, shown certificate.Certificate) error {
	for name, content := range map[string][]byte{"server.crt": shown.PEM(), "server.key": shown.KeyPEM()} {
		file := filepath.Join(e.dataDir(), name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return fmt.Errorf("postgres: write the certificate: %w", err)
		}
		if err := giveAway(file); err != nil {
			return err
		}
	}
	if err := appendTo(filepath.Join(e.dataDir(), "postgresql.conf"), "ssl = on\n"); err != nil {
		return err
	}
	return e.Restart(ctx, Fast)
}
