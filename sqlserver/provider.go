package sqlserver

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open accept URLs such as
// sqlserver://user:password@host:1433?database=orders. The parameters name, append_log_level,
// schema, table, fair_topics, retain, retain_joins, retain_audit, dedup_window and ensure_schema set the
// fields of Config, as in sqlserver://host?database=orders&schema=shop&retain=24h. All other parameters are the
// driver's (encrypt, TrustServerCertificate, …). The driver's have no underscore, so another name with
// one is a *storekit.UnknownParameterError.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:     "sqlserver",
		Schemes:  []string{"sqlserver"},
		Priority: 10,
		Open:     storekit.OpenURL(configOf, Open),
	})
}

// configOf removes Config's parameters from the URL.
func configOf(text string) (string, Config, error) {
	parameters, err := storekit.ParseURL(text)
	if err != nil {
		return "", Config{}, err
	}
	var config Config
	parameters.Fields(&config, "name", "append_log_level", "schema", "table", "fair_topics", "retain", "retain_joins", "retain_audit",
		"dedup_window", "ensure_schema")
	parameters.CheckRest(storekit.WithoutUnderscore)
	return parameters.URL().String(), config, parameters.Err()
}
