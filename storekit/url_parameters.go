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
// contains no password. An @ behind the host, other than in the value of a parameter, is refused,
// because it is probably the end of a password that was not escaped.
func ParseURL(text string) (*URLParameters, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, wrongURL("the URL", text, err)
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return nil, wrongURL("the parameters of the URL", text, err)
	}
	if parsed.Host != "" && cutsPassword(parsed, query) {
		return nil, wrongURL("the URL", text, errors.New("an @ is behind the host"))
	}
	return &URLParameters{url: parsed, query: query}, nil
}

// cutsPassword tells whether a part of a password seems to be the path, the fragment or the name of
// a parameter.
func cutsPassword(u *url.URL, query url.Values) bool {
	for name := range query {
		if strings.Contains(name, "@") {
			return true
		}
	}
	return strings.Contains(u.EscapedPath()+u.EscapedFragment(), "@")
}

// wrongURL says why a URL cannot be read. If it has a password the reason is left out, because it may
// quote a part of it.
func wrongURL(what, text string, reason error) error {
	shown := outmill.RedactURL(text)
	if shown != text {
		reason = errors.New("it cannot be read: in the user, the password and the values of parameters, " +
			"write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, & as %26 and % as %25")
	}
	return fmt.Errorf("%w: %s %s: %w", outmill.ErrInvalidConfig, what, shown, reason)
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
func (p *URLParameters) Level(name string, into *slog.Leveler) {
	p.take(name, func(value string) error { return ParseLevelParameter(name, value, into) })
}

// ParseLevelParameter reads the value of a parameter as [URLParameters.Level] does.
func ParseLevelParameter(name, value string, into *slog.Leveler) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(value)); err != nil {
		return fmt.Errorf("%w: parameter %s is %q: want info, debug or debug-4 (trace)", outmill.ErrInvalidConfig, name, value)
	}
	*into = level
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
