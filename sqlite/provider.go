package sqlite

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open take URLs such as sqlite:orders.db,
// sqlite:///var/lib/orders.db and sqlite::memory:. The parameters name, append_log_level,
// table_prefix, fair_topics, retain, retain_joins, dedup_window, busy_timeout and ensure_schema set
// the fields of Config, as in sqlite:orders.db?table_prefix=shop_&retain=24h. All other parameters
// go to the driver.
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
	var config Config
	var errs []error
	var others []string
	for parameter := range strings.SplitSeq(query, "&") {
		name, escaped, _ := strings.Cut(parameter, "=")
		value, err := url.QueryUnescape(escaped)
		if err != nil {
			return "", Config{}, storekit.InvalidConfig("parameter %s: %w", name, err)
		}
		switch name {
		case "name":
			config.Name = value
		case "append_log_level":
			err = storekit.ParseLevelParameter(name, value, &config.AppendLogLevel)
		case "table_prefix":
			config.TablePrefix = value
		case "fair_topics":
			config.FairTopics = storekit.ParseListParameter(value)
		case "retain":
			config.Retain, err = duration(name, value)
		case "retain_joins":
			config.RetainJoins, err = duration(name, value)
		case "retain_audit":
			config.RetainAudit, err = duration(name, value)
		case "dedup_window":
			config.DedupWindow, err = duration(name, value)
		case "busy_timeout":
			config.BusyTimeout, err = duration(name, value)
		case "ensure_schema":
			if config.EnsureSchema, err = strconv.ParseBool(value); err != nil {
				err = storekit.InvalidConfig("parameter %s is %q: want true or false", name, value)
			}
		case "":
		default:
			others = append(others, parameter)
		}
		errs = append(errs, err)
	}
	if len(others) > 0 {
		rest += "?" + strings.Join(others, "&")
	}
	return rest, config, errors.Join(errs...)
}

func duration(name, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, storekit.InvalidConfig("parameter %s is %q: want a duration such as 24h", name, value)
	}
	return d, nil
}
