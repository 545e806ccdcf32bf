package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// Importing this package makes outmill.Open take URLs such as
// postgres://user:password@host:5432/orders. The parameters name, schema,
// table_prefix, retain, dedup_window, notify_interval, listen_url,
// durable_settle and ensure_schema set the fields of Config, as in
// postgres://host/orders?schema=shop&retain=24h; all others are pgxpool's and
// PostgreSQL's (pool_max_conns, sslmode, …).
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:    "postgres",
		Schemes: []string{"postgres", "postgresql"},
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
	parsed, err := url.Parse(text)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return "", Config{}, invalid("the URL %s: %w", outmill.RedactURL(text), err)
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return "", Config{}, invalid("the parameters of the URL %s: %w", outmill.RedactURL(text), err)
	}
	var config Config
	var errs []error
	take := func(name string, set func(value string) error) {
		if query.Has(name) {
			errs = append(errs, set(query.Get(name)))
			query.Del(name)
		}
	}
	setText := func(into *string) func(string) error {
		return func(value string) error { *into = value; return nil }
	}
	take("name", setText(&config.Name))
	take("schema", setText(&config.Schema))
	take("table_prefix", setText(&config.TablePrefix))
	take("listen_url", setText(&config.ListenURL))
	take("retain", duration("retain", &config.Retain))
	take("retain_joins", duration("retain_joins", &config.RetainJoins))
	take("dedup_window", duration("dedup_window", &config.DedupWindow))
	take("notify_interval", duration("notify_interval", &config.NotifyInterval))
	take("durable_settle", truth("durable_settle", &config.DurableSettle))
	take("ensure_schema", truth("ensure_schema", &config.EnsureSchema))
	parsed.RawQuery = query.Encode()
	return parsed.String(), config, errors.Join(errs...)
}

func duration(name string, into *time.Duration) func(value string) error {
	return func(value string) (err error) {
		if *into, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("%w: parameter %s is %q: want a duration such as 24h", outmill.ErrInvalidConfig, name, value)
		}
		return nil
	}
}

func truth(name string, into *bool) func(value string) error {
	return func(value string) (err error) {
		if *into, err = strconv.ParseBool(value); err != nil {
			return invalid("parameter %s is %q: want true or false", name, value)
		}
		return nil
	}
}
