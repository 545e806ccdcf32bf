package sqlite

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// Importing this package makes outmill.Open take URLs such as
// sqlite:orders.db, sqlite:///var/lib/orders.db and sqlite::memory:, with the
// default Config.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:    "sqlite",
		Schemes: []string{"sqlite", "file"},
		Open: func(ctx context.Context, url string, logger watermill.LoggerAdapter) (outmill.Store, error) {
			return Open(ctx, url, Config{}, logger)
		},
	})
}
