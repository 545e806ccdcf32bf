package sqlite

import (
	"net/url"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open take URLs such as sqlite:orders.db, sqlite:///var/lib/orders.db and sqlite::memory:.
// The parameters name, append_log_level, table_prefix, fair_topics, retain, retain_joins, retain_audit, dedup_window, busy_timeout
// and ensure_schema set the fields of Config, as in sqlite:orders.db?table_prefix=shop_&retain=24h. The parameters of SQLite (mode,
// cache, …) and of the driver (_pragma, …) go to the driver. Any other is a *storekit.UnknownParameterError.
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
	parameters.Fields(&config, "name", "append_log_level", "table_prefix", "fair_topics", "retain", "retain_joins", "retain_audit",
		"dedup_window", "busy_timeout", "ensure_schema")
	parameters.CheckRest(driversOf(parameters.URL().Query()))
	// SQLite does not read + as a blank. The values of one name, such as pragmas, keep their order.
	if left := strings.ReplaceAll(parameters.URL().RawQuery, "+", "%20"); left != "" {
		rest += "?" + left
	}
	return rest, config, parameters.Err()
}

// driversOf says which parameters are the driver's: those of SQLite's URIs, and of the Go driver, which begin with an
// underscore. A file system of the user (vfs) may have more.
func driversOf(query url.Values) func(name string) bool {
	sqlites := []string{"cache", "immutable", "mode", "modeof", "nolock", "psow", "vfs"}
	return func(name string) bool {
		return query.Has("vfs") || strings.HasPrefix(name, "_") || slices.Contains(sqlites, name)
	}
}
