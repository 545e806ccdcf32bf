package postgres

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open take URLs such as
// postgres://user:password@host:5432/orders. The parameters name, schema, append_log_level,
// table_prefix, retain, retain_joins, retain_audit, dedup_window, notify_interval, listen_url, fair_topics,
// idle_in_transaction, durable_settle and ensure_schema set the fields of Config, as in
// postgres://host/orders?schema=shop&retain=24h. All other parameters belong to pgxpool and
// PostgreSQL (pool_max_conns, sslmode, …). A parameter that is nearly one of the store is a
// *storekit.UnknownParameterError.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:     "postgres",
		Schemes:  []string{"postgres", "postgresql"},
		Priority: 10,
		Open:     storekit.OpenURL(ConfigOf, Open),
	})
}

// ConfigOf takes the parameters that set the fields of Config out of a URL, as outmill.Open does, and
// returns the rest of the URL, for pgxpool.New, and the Config, for example that of Schemas. Errors:
// outmill.ErrInvalidConfig, which contains no password.
func ConfigOf(text string) (string, Config, error) {
	parameters, err := storekit.ParseURL(text)
	if err != nil {
		return "", Config{}, err
	}
	var config Config
	parameters.Fields(&config, "name", "append_log_level", "schema", "table_prefix", "listen_url", "fair_topics", "retain",
		"retain_joins", "retain_audit", "dedup_window", "notify_interval", "idle_in_transaction", "durable_settle", "ensure_schema")
	// The server refuses what it does not know, so only names that are nearly the store's are refused here.
	parameters.CheckRest(func(string) bool { return true })
	return parameters.URL().String(), config, parameters.Err()
}
