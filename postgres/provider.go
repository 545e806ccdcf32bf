package postgres

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open take URLs such as
// postgres://user:password@host:5432/orders. The parameters name, schema,
// append_log_level, table_prefix, retain, retain_joins, dedup_window, notify_interval, listen_url,
// lane, durable_settle and ensure_schema set the fields of Config, as in
// postgres://host/orders?schema=shop&retain=24h; all others are pgxpool's and
// PostgreSQL's (pool_max_conns, sslmode, …).
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:     "postgres",
		Schemes:  []string{"postgres", "postgresql"},
		Priority: 10,
		Open: func(ctx context.Context, url string, logger watermill.LoggerAdapter) (outmill.Store, error) {
			database, config, err := configOf(url)
			if err != nil {
				return nil, err
			}
			return Open(ctx, database, config, logger)
		},
	})
}

// configOf takes the parameters out of the URL that are Config's.
func configOf(text string) (string, Config, error) {
	parameters, err := storekit.ParseURL(text)
	if err != nil {
		return "", Config{}, err
	}
	var config Config
	parameters.Text("name", &config.Name)
	parameters.Level("append_log_level", &config.AppendLogLevel)
	parameters.Text("schema", &config.Schema)
	parameters.Text("table_prefix", &config.TablePrefix)
	parameters.Text("listen_url", &config.ListenURL)
	parameters.Text("lane", (*string)(&config.Lane))
	parameters.Duration("retain", &config.Retain)
	parameters.Duration("retain_joins", &config.RetainJoins)
	parameters.Duration("dedup_window", &config.DedupWindow)
	parameters.Duration("notify_interval", &config.NotifyInterval)
	parameters.Bool("durable_settle", &config.DurableSettle)
	parameters.Bool("ensure_schema", &config.EnsureSchema)
	return parameters.URL().String(), config, parameters.Err()
}
