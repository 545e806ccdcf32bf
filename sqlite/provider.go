package sqlite

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Importing this package makes outmill.Open take URLs such as
// sqlite:orders.db, sqlite:///var/lib/orders.db and sqlite::memory:. The
// parameters name, append_log_level, table_prefix, retain, retain_joins,
// dedup_window, busy_timeout and ensure_schema set the fields of Config, as in
// sqlite:orders.db?table_prefix=shop_&retain=24h; all others are the driver's.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:    "sqlite",
		Schemes: []string{"sqlite", "file"},
		// An embedded store is the last resort: see outmill.Provider.
		Priority: -10,
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
func configOf(database string) (string, Config, error) {
	rest, query, _ := strings.Cut(database, "?")
	var config Config
	var errs []error
	var others []string
	for parameter := range strings.SplitSeq(query, "&") {
		name, escaped, _ := strings.Cut(parameter, "=")
		value, err := url.QueryUnescape(escaped)
		if err != nil {
			return "", Config{}, invalid("parameter %s: %w", name, err)
		}
		switch name {
		case "name":
			config.Name = value
		case "append_log_level":
			err = storekit.ParseLevelParameter(name, value, &config.AppendLogLevel)
		case "table_prefix":
			config.TablePrefix = value
		case "retain":
			config.Retain, err = duration(name, value)
		case "retain_joins":
			config.RetainJoins, err = duration(name, value)
		case "dedup_window":
			config.DedupWindow, err = duration(name, value)
		case "busy_timeout":
			config.BusyTimeout, err = duration(name, value)
		case "ensure_schema":
			if config.EnsureSchema, err = strconv.ParseBool(value); err != nil {
				err = invalid("parameter %s is %q: want true or false", name, value)
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
		return 0, invalid("parameter %s is %q: want a duration such as 24h", name, value)
	}
	return d, nil
}
