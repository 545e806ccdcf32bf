package sqlite

import (
	"net/url"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open take URLs such as sqlite:orders.db,
// sqlite:///var/lib/orders.db and sqlite::memory:. The parameters name, append_log_level,
// table_prefix, fair_topics, retain, retain_joins, retain_audit, dedup_window, busy_timeout and ensure_schema
// set the fields of Config, as in sqlite:orders.db?table_prefix=shop_&retain=24h. The parameters of
// SQLite (mode, cache, …) and of the driver (_pragma, …) go to the driver. Any other is a
// *storekit.UnknownParameterError.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:    "sqlite",
		Schemes: []string{"sqlite", "file"},
		// An embedded store is the last resort: see outmill.Provider.
		Priority: -10,
		Open:     storekit.OpenURL(configOf, Open),
	})
}

// configOf removes the parameters of Config from the URL, and returns them.
func configOf(database string) (string, Config, error) {
	rest, query, _ := strings.Cut(database, "?")
	parameters, err := storekit.ParseURL("?" + query)
	if err != nil {
		return "", Config{}, err
	}
	var config Config
	parameters.Text("name", &config.Name)
	parameters.Level("append_log_level", &config.AppendLogLevel)
	parameters.Text("table_prefix", &config.TablePrefix)
	parameters.List("fair_topics", &config.FairTopics)
	parameters.Duration("retain", &config.Retain)
	parameters.Duration("retain_joins", &config.RetainJoins)
	parameters.Duration("retain_audit", &config.RetainAudit)
	parameters.Duration("dedup_window", &config.DedupWindow)
	parameters.Duration("busy_timeout", &config.BusyTimeout)
	parameters.Bool("ensure_schema", &config.EnsureSchema)
	left := parameters.URL().Query()
	parameters.CheckRest(driversOf(left))
	if others := keep(query, left); others != "" {
		rest += "?" + others
	}
	return rest, config, parameters.Err()
}

// sqliteParameters are those of SQLite's URIs; the names of the Go driver begin with an underscore.
var sqliteParameters = []string{"cache", "immutable", "mode", "modeof", "nolock", "psow", "vfs"}

// driversOf says which parameters are the driver's. A file system of the user (vfs) may have more.
func driversOf(query url.Values) func(name string) bool {
	return func(name string) bool {
		return query.Has("vfs") || strings.HasPrefix(name, "_") || slices.Contains(sqliteParameters, name)
	}
}

// keep returns those parameters of a query that are also in left, as they are written: the driver
// takes pragmas in their order.
func keep(query string, left url.Values) string {
	var kept []string
	for parameter := range strings.SplitSeq(query, "&") {
		escaped, _, _ := strings.Cut(parameter, "=")
		if name, err := url.QueryUnescape(escaped); err == nil && left.Has(name) {
			kept = append(kept, parameter)
		}
	}
	return strings.Join(kept, "&")
}
