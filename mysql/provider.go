package mysql

import (
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open take URLs such as mysql://user:password@host:3306/orders and mariadb://host/orders. The
// parameters name, append_log_level, table_prefix, fair_topics, retain, retain_joins, retain_audit, dedup_window and ensure_schema set
// the fields of Config. All other parameters are the driver's (tls, timeout, …), or one of some variables of the session, such as
// sql_mode. Another one is a *storekit.UnknownParameterError.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:     "mysql",
		Schemes:  []string{"mysql", "mariadb"},
		Priority: 10,
		Open:     storekit.OpenURL(configOf, Open),
	})
}

// configOf removes the parameters of Config from the URL, and returns them.
func configOf(database string) (string, Config, error) {
	parameters, err := storekit.ParseURL(database)
	if err != nil {
		return "", Config{}, err
	}
	var config Config
	parameters.Fields(&config, "name", "append_log_level", "table_prefix", "fair_topics", "retain", "retain_joins", "retain_audit",
		"dedup_window", "ensure_schema")
	parameters.CheckRest(driversOf)
	return parameters.URL().String(), config, parameters.Err()
}

// variables are those of a session that a URL may set. Another name with an underscore is misspelt.
var variables = []string{"innodb_lock_wait_timeout", "max_execution_time", "max_statement_time", "sql_mode", "time_zone", "wait_timeout"}

func driversOf(name string) bool {
	return storekit.WithoutUnderscore(name) || slices.Contains(variables, name)
}
