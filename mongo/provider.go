package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/outmill/outmill"
)

// Importing this package makes outmill.Open take URLs such as
// mongodb://user:password@host:27017/orders?replicaSet=rs0 and mongodb+srv://….
// The path names the database. The parameters name, collection_prefix, retain,
// retain_joins, dedup_window, embed_json, transactions, change_stream and
// ensure_schema set the fields of Config, as in mongodb://host/orders?replicaSet=rs0&retain=24h (transactions
// and change_stream are true unless set to false); all others are the driver's.
func init() {
	outmill.RegisterProvider(outmill.Provider{
		Name:    "mongo",
		Schemes: []string{"mongodb", "mongodb+srv"},
		Open: func(ctx context.Context, url string, logger watermill.LoggerAdapter) (outmill.Store, error) {
			uri, config, err := configOf(url)
			if err != nil {
				return nil, err
			}
			return Open(ctx, uri, config, logger)
		},
	})
}

// configOf takes the parameters out of the URL that are Config's, and refuses
// those that the driver does not know either: it would only log them.
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
	config := Config{}
	if len(parsed.Path) > 1 {
		config.Database = parsed.Path[1:]
	}
	var errs []error
	take := func(name string, set func(value string) error) {
		if query.Has(name) {
			errs = append(errs, set(query.Get(name)))
			query.Del(name)
		}
	}
	take("name", func(value string) error { config.Name = value; return nil })
	take("collection_prefix", func(value string) error { config.CollectionPrefix = value; return nil })
	take("retain", duration("retain", &config.Retain))
	take("retain_joins", duration("retain_joins", &config.RetainJoins))
	take("dedup_window", duration("dedup_window", &config.DedupWindow))
	take("embed_json", truth("embed_json", true, &config.EmbedJSON))
	take("transactions", truth("transactions", false, &config.WithoutTransactions))
	take("change_stream", truth("change_stream", false, &config.WithoutChangeStream))
	take("ensure_schema", truth("ensure_schema", true, &config.EnsureSchema))
	parsed.RawQuery = query.Encode()
	errs = append(errs, checkParameters(parsed))
	return parsed.String(), config, errors.Join(errs...)
}

// checkParameters leaves URLs to the driver that it must ask the DNS about.
func checkParameters(uri *url.URL) error {
	if uri.Scheme != "mongodb" {
		return nil
	}
	// Where the rest is wrong, connecting says so.
	if parsed, err := connstring.Parse(uri.String()); err == nil {
		for _, name := range slices.Sorted(maps.Keys(parsed.UnknownOptions)) {
			return invalid("parameter %s of the URL %s is neither the store's nor the driver's", name, outmill.RedactURL(uri.String()))
		}
	}
	return nil
}

func duration(name string, into *time.Duration) func(value string) error {
	return func(value string) (err error) {
		if *into, err = time.ParseDuration(value); err != nil {
			return invalid("parameter %s is %q: want a duration such as 24h", name, value)
		}
		return nil
	}
}

// truth sets a field where the parameter is as given.
func truth(name string, as bool, into *bool) func(value string) error {
	return func(value string) error {
		is, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%w: parameter %s is %q: want true or false", outmill.ErrInvalidConfig, name, value)
		}
		*into = is == as
		return nil
	}
}
