// Package urlconfig takes a store's own settings out of the parameters of a URL;
// the rest is for its driver.
package urlconfig

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	"github.com/outmill/outmill"
)

// Parameters are those of one URL. Take what is the store's, then ask for Err
// and for the URL with what is left.
type Parameters struct {
	url   *url.URL
	query url.Values
	errs  []error
}

// Parse returns the parameters of a URL; an error is an
// outmill.ErrInvalidConfig and has no password in it.
func Parse(text string) (*Parameters, error) {
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
	return &Parameters{url: parsed, query: query}, nil
}

// URL is the URL without what was taken.
func (p *Parameters) URL() *url.URL {
	left := *p.url
	left.RawQuery = p.query.Encode()
	return &left
}

// Err is what was wrong with the values that were taken.
func (p *Parameters) Err() error { return errors.Join(p.errs...) }

// Get returns a parameter that is left where it is.
func (p *Parameters) Get(name string) string { return p.query.Get(name) }

func (p *Parameters) take(name string, set func(value string) error) {
	if p.query.Has(name) {
		p.errs = append(p.errs, set(p.query.Get(name)))
		p.query.Del(name)
	}
}

// Text takes a text.
func (p *Parameters) Text(name string, into *string) {
	p.take(name, func(value string) error { *into = value; return nil })
}

// Duration takes a duration such as 24h.
func (p *Parameters) Duration(name string, into *time.Duration) {
	p.take(name, func(value string) (err error) {
		if *into, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("%w: parameter %s is %q: want a duration such as 24h", outmill.ErrInvalidConfig, name, value)
		}
		return nil
	})
}

// Level takes a level such as debug, or debug-4 for trace.
func (p *Parameters) Level(name string, into *slog.Level) {
	p.take(name, func(value string) error { return Level(name, value, into) })
}

// Level reads a parameter for Level.
func Level(name, value string, into *slog.Level) error {
	if err := into.UnmarshalText([]byte(value)); err != nil {
		return fmt.Errorf("%w: parameter %s is %q: want info, debug or debug-4 (trace)", outmill.ErrInvalidConfig, name, value)
	}
	return nil
}

// Bool takes true or false.
func (p *Parameters) Bool(name string, into *bool) {
	p.take(name, func(value string) (err error) {
		if *into, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%w: parameter %s is %q: want true or false", outmill.ErrInvalidConfig, name, value)
		}
		return nil
	})
}

// Off is Bool for a setting that turns something off which is on by default.
func (p *Parameters) Off(name string, into *bool) {
	on := !*into
	p.Bool(name, &on)
	*into = !on
}
