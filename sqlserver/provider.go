package sqlserver

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open take URLs such as
// sqlserver://user:password@host:1433?database=orders. The parameters name,
// append_log_level, schema, table, retain, retain_joins, dedup_window and ensure_schema set the
// fields of Config, as in sqlserver://host?database=orders&schema=shop&retain=24h;
// all others are the driver's (encrypt, TrustServerCertificate, …).
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:     "sqlserver",
		Schemes:  []string{"sqlserver"},
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
	parameters.Text("table", &config.Table)
	parameters.Duration("retain", &config.Retain)
	parameters.Duration("retain_joins", &config.RetainJoins)
	parameters.Duration("dedup_window", &config.DedupWindow)
	parameters.Bool("ensure_schema", &config.EnsureSchema)
	return parameters.URL().String(), config, parameters.Err()
}
