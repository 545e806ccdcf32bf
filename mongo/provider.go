package mongo

import (
	"errors"
	"maps"
	"net/url"
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open accept URLs such as
// mongodb://user:password@host:27017/orders?replicaSet=rs0 and mongodb+srv://…. The path names
// the database. The parameters name, append_log_level, collection_prefix, retain, retain_joins,
// retain_audit, dedup_window, embed_json, transactions, change_stream and ensure_schema set the fields of
// Config, as in mongodb://host/orders?replicaSet=rs0&retain=24h. transactions and change_stream
// are true by default. All other parameters are the driver's.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:     "mongo",
		Schemes:  []string{"mongodb", "mongodb+srv"},
		Priority: 20,
		Open:     storekit.OpenURL(configOf, Open),
	})
}

// configOf removes Config's parameters from the URL. It refuses parameters that the driver does
// not know either, because the driver would only log them.
func configOf(text string) (string, Config, error) {
	parameters, err := storekit.ParseURL(text)
	if err != nil {
		return "", Config{}, err
	}
	var config Config
	parameters.Text("name", &config.Name)
	parameters.Level("append_log_level", &config.AppendLogLevel)
	parameters.Text("collection_prefix", &config.CollectionPrefix)
	parameters.Duration("retain", &config.Retain)
	parameters.Duration("retain_joins", &config.RetainJoins)
	parameters.Duration("retain_audit", &config.RetainAudit)
	parameters.Duration("dedup_window", &config.DedupWindow)
	parameters.Bool("embed_json", &config.EmbedJSON)
	parameters.Off("transactions", &config.WithoutTransactions)
	parameters.Off("change_stream", &config.WithoutChangeStream)
	parameters.Bool("ensure_schema", &config.EnsureSchema)
	left := parameters.URL()
	if len(left.Path) > 1 {
		config.Database = left.Path[1:]
	}
	return left.String(), config, errors.Join(parameters.Err(), checkParameters(left))
}

// checkParameters checks no URL that the driver must resolve by DNS.
func checkParameters(uri *url.URL) error {
	if uri.Scheme != "mongodb" {
		return nil
	}
	// If the rest of the URL is wrong, connecting returns the error.
	if parsed, err := connstring.Parse(uri.String()); err == nil {
		for _, name := range slices.Sorted(maps.Keys(parsed.UnknownOptions)) {
			return storekit.InvalidConfig("parameter %s of the URL %s is neither the store's nor the driver's", name,
				outmill.RedactURL(uri.String()))
		}
	}
	return nil
}
