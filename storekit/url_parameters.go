package storekit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill"
)

// URLParameters are the parameters of one URL, for the provider of a store. Take the
// settings of the store, then call CheckRest and Err, and then URL for the URL with the
// remaining parameters, which are for the driver. Use it from one goroutine at a time.
type URLParameters struct {
	url   *url.URL
	query url.Values
	// taken are the names of the settings that were taken or looked for.
	taken []string
	errs  []error
}

// ParseURL returns the parameters of a URL; an error is an outmill.ErrInvalidConfig and
// contains no password.
func ParseURL(text string) (*URLParameters, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, fmt.Errorf("%w: the URL %s: %w", outmill.ErrInvalidConfig, outmill.RedactURL(text), err)
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: the parameters of the URL %s: %w", outmill.ErrInvalidConfig, outmill.RedactURL(text), err)
	}
	return &URLParameters{url: parsed, query: query}, nil
}

// URL returns the URL without the parameters that were taken.
func (p *URLParameters) URL() *url.URL {
	left := *p.url
	left.RawQuery = p.query.Encode()
	return &left
}

// Err returns all errors of the values that were taken, joined; each is an
// outmill.ErrInvalidConfig.
func (p *URLParameters) Err() error { return errors.Join(p.errs...) }

// Get returns a parameter without taking it.
func (p *URLParameters) Get(name string) string { return p.query.Get(name) }

func (p *URLParameters) take(name string, set func(value string) error) {
	p.taken = append(p.taken, name)
	if p.query.Has(name) {
		p.errs = append(p.errs, set(p.query.Get(name)))
		p.query.Del(name)
	}
}

// Text takes a text.
func (p *URLParameters) Text(name string, into *string) {
	p.take(name, func(value string) error { *into = value; return nil })
}

// Duration takes a duration such as 24h.
func (p *URLParameters) Duration(name string, into *time.Duration) {
	p.take(name, func(value string) (err error) {
		if *into, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("%w: parameter %s is %q: want a duration such as 24h", outmill.ErrInvalidConfig, name, value)
		}
		return nil
	})
}

// List takes texts with commas between them.
func (p *URLParameters) List(name string, into *[]string) {
	p.take(name, func(value string) error { *into = ParseListParameter(value); return nil })
}

// ParseListParameter reads the value of a parameter as [URLParameters.List] does.
func ParseListParameter(value string) []string { return strings.Split(value, ",") }

// Level takes a level such as debug, or debug-4 for trace.
func (p *URLParameters) Level(name string, into *slog.Level) {
	p.take(name, func(value string) error { return ParseLevelParameter(name, value, into) })
}

// ParseLevelParameter reads the value of a parameter as [URLParameters.Level] does.
func ParseLevelParameter(name, value string, into *slog.Level) error {
	if err := into.UnmarshalText([]byte(value)); err != nil {
		return fmt.Errorf("%w: parameter %s is %q: want info, debug or debug-4 (trace)", outmill.ErrInvalidConfig, name, value)
	}
	return nil
}

// Bool takes true or false.
func (p *URLParameters) Bool(name string, into *bool) {
	p.take(name, func(value string) (err error) {
		if *into, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%w: parameter %s is %q: want true or false", outmill.ErrInvalidConfig, name, value)
		}
		return nil
	})
}

// Off is Bool for a setting that turns off a default: the parameter false sets it.
func (p *URLParameters) Off(name string, into *bool) {
	on := !*into
	p.Bool(name, &on)
	*into = !on
}
