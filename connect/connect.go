// Package connect finds the URL of a store in settings or the environment, and opens the
// store. The program imports the packages of the stores to choose from.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// DefaultSource is the source of a [Connection] that names none.
const DefaultSource = "default"

// Connection says where to find the URL of a store. The places, in order:
//
//  1. URL.
//  2. The named source for the provider: the setting
//     sources.<Source>.<provider>.connection_string.
//  3. The named connection string: the setting
//     connection_strings.<ConnectionString>.
//
// If Provider is empty, Resolve tries 2 and 3 for each registered provider, in the order of
// their priority, and uses the first URL that it finds. A named ConnectionString is the
// exception: Resolve looks it up once, after all sources, and the scheme of its URL decides
// the provider. Every value is a URL whose scheme belongs to the provider. Settings that
// are empty or blank count as not set.
type Connection struct {
	// URL of the store; it overrides all other places.
	URL string
	// Provider is the name of a registered provider; if it is "", the places and the
	// priorities decide.
	Provider string
	// Source is the name of the source; "" is DefaultSource.
	Source string
	// ConnectionString is the name of the connection string; "" means the name of the
	// provider.
	ConnectionString string
	// Lookup returns a setting by its key, and whether it exists: [LookupEnv], [LookupMap], or
	// the application's own function. With nil only the URL is used.
	Lookup func(key string) (value string, found bool)
}

// Resolution is the result of resolving a [Connection]. fmt prints it with the URL
// redacted.
type Resolution struct {
	// URL is the URL without the parameters in Defaults. It may contain a password, so do not
	// log it.
	URL string
	// Defaults are the settings of subscribers and forwarders in the URL.
	Defaults outmill.WorkerDefaults
	// Provider is the name of the provider that opens it.
	Provider string
	// From is the place of the URL: "Connection.URL", or the setting's key.
	From string
}

func (r Resolution) String() string {
	return fmt.Sprintf("%s from %s: %s", r.Provider, r.From, outmill.RedactURL(r.URL))
}

// GoString is String, so that %#v shows no password either.
func (r Resolution) GoString() string { return r.String() }

// LookupMap looks settings up in a copy of the map.
func LookupMap(settings map[string]string) func(key string) (string, bool) {
	settings = maps.Clone(settings)
	return func(key string) (string, bool) {
		value, found := settings[key]
		return value, found
	}
}

// LookupEnv looks settings up in the environment. The variable's name is the prefix, an
// underscore and the key in upper case, with an underscore for every character that is
// neither a letter nor a digit: sources.orders.sqlite.connection_string with the prefix
// OUTMILL is OUTMILL_SOURCES_ORDERS_SQLITE_CONNECTION_STRING. Without a prefix it is the
// key alone.
func LookupEnv(prefix string) func(key string) (string, bool) {
	if prefix != "" {
		prefix += "_"
	}
	return func(key string) (string, bool) {
		return os.LookupEnv(prefix + strings.Map(envRune, key))
	}
}

func envRune(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z':
		return r - 'a' + 'A'
	case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return r
	}
	return '_'
}

// Resolve finds the URL of a store and its provider, without opening the store.
//
// Errors: *ConnectionNotFoundError, *UnknownProviderError, *outmill.InvalidURLError. A
// setting that exists but is invalid is an error; Resolve does not silently continue with a
// later place.
func Resolve(conn Connection) (Resolution, error) {
	search := search{conn: conn}
	return search.run()
}

// Open resolves the connection, opens the store, logs the choice (store, provider, place of
// the URL, redacted URL, workers' defaults) and returns both. A nil logger logs nothing.
// The caller closes the store. Errors are those of [Resolve], and those of [outmill.Open]
// with the place of the URL.
func Open(ctx context.Context, conn Connection, logger watermill.LoggerAdapter) (outmill.Store, Resolution, error) {
	choice, err := Resolve(conn)
	if err != nil {
		return nil, Resolution{}, err
	}
	if outmill.IsNil(logger) {
		logger = watermill.NopLogger{}
	}
	store, err := outmill.Open(ctx, choice.URL, logger)
	if err != nil {
		return nil, Resolution{}, fmt.Errorf("%s: %w", choice.From, err)
	}
	logger.Info("Chose the store's connection", fields(choice.Defaults).Add(watermill.LogFields{
		"store":    store.Name(),
		"provider": choice.Provider,
		"from":     choice.From,
		"url":      outmill.RedactURL(choice.URL),
	}))
	return store, choice, nil
}

// ConnectionNotFoundError lists the places of a [Connection], none of which has a URL. It
// is an [outmill.ErrInvalidConfig].
type ConnectionNotFoundError struct {
	// Looked lists the places in the order of the search: "Connection.URL" and the keys of
	// settings.
	Looked []string
	// NoLookup says that Connection.Lookup is nil, so that Resolve could read no settings.
	NoLookup bool
}

func (e *ConnectionNotFoundError) Error() string {
	remedy := "set one of them"
	if e.NoLookup {
		remedy = "set it, or set Connection.Lookup to search settings too"
	}
	return fmt.Sprintf("%s: no connection to a store; searched, in this order: %s; %s",
		outmill.ErrInvalidConfig, strings.Join(e.Looked, ", "), remedy)
}

// Is makes errors.Is(err, outmill.ErrInvalidConfig) true.
func (e *ConnectionNotFoundError) Is(target error) bool { return target == outmill.ErrInvalidConfig }

// UnknownProviderError says that the provider of a [Connection] is not registered, or that
// no provider is. The usual cause is a missing import. It is an [outmill.ErrInvalidConfig].
type UnknownProviderError struct {
	// Provider is the name that is not registered; "" if the Connection names none and none is
	// registered.
	Provider string
	// Registered are the names that are registered, sorted.
	Registered []string
}

func (e *UnknownProviderError) Error() string {
	if e.Provider == "" {
		return fmt.Sprintf("%s: no store is registered: import the package of a store, such as import _ %q", outmill.ErrInvalidConfig,
			module+"sqlite")
	}
	remedy := fmt.Sprintf("import the package of that store, as import _ %q does for SQLite", module+"sqlite")
	if slices.Contains(stores, e.Provider) {
		remedy = fmt.Sprintf("add import _ %q", module+e.Provider)
	}
	return fmt.Sprintf("%s: Connection.Provider %q is not registered (registered: %s): %s",
		outmill.ErrInvalidConfig, e.Provider, cmp.Or(strings.Join(e.Registered, ", "), "none"), remedy)
}

// Is makes errors.Is(err, outmill.ErrInvalidConfig) true.
func (e *UnknownProviderError) Is(target error) bool { return target == outmill.ErrInvalidConfig }

const module = "github.com/outmill/outmill/"

// stores are the packages of this module whose provider has the name of the package.
var stores = []string{"mongo", "mysql", "postgres", "sqlite", "sqlserver"}

// search is one run of Resolve; it records each place that it reads.
type search struct {
	conn   Connection
	looked []string
}

func (s *search) run() (Resolution, error) {
	const from = "Connection.URL"
	if url, found := s.take(from, s.conn.URL, true); found {
		return s.explicit(from, url)
	}
	candidates, err := s.candidates()
	if err != nil {
		return Resolution{}, err
	}
	if s.conn.Lookup == nil {
		return Resolution{}, &ConnectionNotFoundError{Looked: s.looked, NoLookup: true}
	}
	for _, provider := range candidates {
		choice, found, err := s.settingsOf(provider)
		if found || err != nil {
			return choice, err
		}
	}
	return s.sharedString()
}

// explicit resolves a URL whose place does not decide the provider.
func (s *search) explicit(from, url string) (Resolution, error) {
	if s.conn.Provider != "" {
		provider, err := s.named()
		if err != nil {
			return Resolution{}, err
		}
		return choose(provider, from, url)
	}
	provider, err := outmill.ProviderFor(url)
	if err != nil {
		return Resolution{}, fmt.Errorf("%s: %w", from, err)
	}
	return resolved(provider, from, url)
}

func resolved(provider outmill.Provider, from, url string) (Resolution, error) {
	defaults, rest, err := outmill.DefaultsOf(url)
	if err != nil {
		return Resolution{}, fmt.Errorf("%s: %w", from, err)
	}
	return Resolution{URL: rest, Defaults: defaults, Provider: provider.Name, From: from}, nil
}

func (s *search) candidates() ([]outmill.Provider, error) {
	if s.conn.Provider != "" {
		provider, err := s.named()
		return []outmill.Provider{provider}, err
	}
	all := outmill.Providers()
	if len(all) == 0 {
		return nil, &UnknownProviderError{}
	}
	return all, nil
}

func (s *search) named() (outmill.Provider, error) {
	var names []string
	for _, provider := range outmill.Providers() {
		if provider.Name == s.conn.Provider {
			return provider, nil
		}
		names = append(names, provider.Name)
	}
	slices.Sort(names)
	return outmill.Provider{}, &UnknownProviderError{Provider: s.conn.Provider, Registered: names}
}

func (s *search) settingsOf(provider outmill.Provider) (Resolution, bool, error) {
	source := fmt.Sprintf("sources.%s.%s.connection_string", cmp.Or(s.conn.Source, DefaultSource), provider.Name)
	if url, found := s.lookup(source); found {
		choice, err := choose(provider, source, url)
		return choice, true, err
	}
	if s.shared() {
		return Resolution{}, false, nil
	}
	key := connectionStringKey(cmp.Or(s.conn.ConnectionString, provider.Name))
	if url, found := s.lookup(key); found {
		choice, err := choose(provider, key, url)
		return choice, true, err
	}
	return Resolution{}, false, nil
}

// shared reports whether the connection string belongs to no provider yet.
func (s *search) shared() bool { return s.conn.ConnectionString != "" && s.conn.Provider == "" }

func (s *search) sharedString() (Resolution, error) {
	if s.shared() {
		key := connectionStringKey(s.conn.ConnectionString)
		if url, found := s.lookup(key); found {
			return s.explicit(key, url)
		}
	}
	return Resolution{}, &ConnectionNotFoundError{Looked: s.looked}
}

func connectionStringKey(name string) string { return "connection_strings." + name }

func (s *search) lookup(key string) (string, bool) {
	value, found := s.conn.Lookup(key)
	return s.take(key, value, found)
}

func (s *search) take(place, value string, found bool) (string, bool) {
	s.looked = append(s.looked, place)
	value = strings.TrimSpace(value)
	return value, found && value != ""
}

// choose refuses a URL of another provider, because its place names the provider.
func choose(provider outmill.Provider, from, url string) (Resolution, error) {
	opens, err := outmill.ProviderFor(url)
	if opens.Name == provider.Name {
		return resolved(provider, from, url)
	}
	var malformed *outmill.InvalidURLError
	if !errors.As(err, &malformed) || len(malformed.Registered) > 0 {
		err = &outmill.InvalidURLError{
			URL:    outmill.RedactURL(url),
			Reason: fmt.Sprintf("does not belong to the provider %s: want the scheme %s", provider.Name, strings.Join(provider.Schemes, " or ")),
		}
	}
	return Resolution{}, fmt.Errorf("%s: %w", from, err)
}

// fields are the settings that a URL has, for the log.
func fields(d outmill.WorkerDefaults) watermill.LogFields {
	fields := watermill.LogFields{}
	if d.Lease != 0 {
		fields["lease"] = d.Lease.String()
	}
	if d.BatchSize != 0 {
		fields["batch_size"] = d.BatchSize
	}
	if d.MaxAttempts != 0 {
		fields["max_attempts"] = d.MaxAttempts
	}
	return fields
}
