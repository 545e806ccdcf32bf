package mongo

import (
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open accept URLs such as
// mongodb://user:password@host:27017/orders?replicaSet=rs0 and mongodb+srv://…. The path names
// the database. The parameters name, append_log_level, collection_prefix, retain, retain_joins,
// retain_audit, dedup_window, embed_json, fair_topics, change_stream and ensure_schema set the fields
// of Config, as in mongodb://host/orders?replicaSet=rs0&retain=24h. change_stream is true by
// default. All other parameters are the driver's; one that the driver does not have is a
// *storekit.UnknownParameterError.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:     "mongo",
		Schemes:  []string{"mongodb", "mongodb+srv"},
		Priority: 20,
		Open:     storekit.OpenURL(ConfigOf, Open),
	})
}

// ConfigOf takes the parameters that set the fields of Config out of a URL, as outmill.Open does, and
// returns the rest of the URL, for the driver, and the Config. Config.Database is the path of the URL,
// so clear it for Databases. Errors: outmill.ErrInvalidConfig, which contains no password.
func ConfigOf(text string) (string, Config, error) {
	parameters, err := storekit.ParseURL(text)
	if err != nil {
		return "", Config{}, err
	}
	var config Config
	parameters.Fields(&config, "name", "append_log_level", "collection_prefix", "retain", "retain_joins", "retain_audit", "dedup_window",
		"embed_json", "fair_topics", "ensure_schema")
	parameters.Off("change_stream", &config.WithoutChangeStream)
	left := parameters.URL()
	parameters.CheckRest(driversOf(left))
	if len(left.Path) > 1 {
		config.Database = left.Path[1:]
	}
	return left.String(), config, parameters.Err()
}

// driversOf says which parameters are the driver's. The driver would only log a name that it does not
// have. The parameters behind mongodb+srv are checked by their style only, because the driver resolves
// such a URL by DNS before it reads them.
func driversOf(uri *url.URL) func(name string) bool {
	var unknown map[string][]string
	if uri.Scheme == "mongodb" {
		// If the rest of the URL is wrong, connecting returns the error.
		if parsed, err := connstring.Parse(uri.String()); err == nil {
			unknown = parsed.UnknownOptions
		}
	}
	return func(name string) bool {
		_, is := unknown[strings.ToLower(name)]
		return !is && storekit.WithoutUnderscore(name)
	}
}
