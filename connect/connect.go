// Package connect finds the URL of a store in settings or the environment, and opens the
// store. Import the packages of the stores among which it chooses.
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

// DefaultSource is the source that a [Connection] looks for where it names
// none.
const DefaultSource = "default"

// Connection says where the URL of a store is to be found. The places, in
// order:
//
//  1. URL.
//  2. The named source for the provider: the setting
//     sources.<Source>.<provider>.connection_string.
//  3. The named connection string: the setting
//     connection_strings.<ConnectionString>.
//
// Where Provider is empty, 2 and 3 are tried for each registered provider, that
// with the highest priority first, and what is found first wins; but a named
// ConnectionString is looked at once, after all sources, and its scheme says
// whose it is. Every value is a URL whose scheme belongs to the provider.
// Settings that are empty or blank count as not set.
type Connection struct {
	// URL of the store; it wins over all else.
	URL string
	// Provider is the name of a registered provider; "" leaves the choice to the
	// places and the priorities.
	Provider string
	// Source is the name of the source; "" is DefaultSource.
	Source string
	// ConnectionString is the name of the connection string; "" is the name of
	// the provider that is being tried.
	ConnectionString string
	// Lookup returns a setting by its key, and whether there is one: [LookupEnv],
	// [LookupMap], or the application's own. nil leaves only the URL.
	Lookup func(key string) (value string, found bool)
}

// Resolution is the choice that a [Connection] came to. Printed by fmt it shows
// the URL redacted.
type Resolution struct {
	// URL is the URL without what is in Defaults. It may have a password, so do not
	// log it.
	URL string
	// Defaults are the settings of subscribers and forwarders that the URL has.
	Defaults outmill.WorkerDefaults
	// Provider is the name of the provider that opens it.
	Provider string
	// From is where the URL was found: Connection.URL, or the setting's key.
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

// LookupEnv looks settings up in the environment. The variable's name is the
// prefix, an underscore and the key in upper case, with an underscore for
// whatever is neither letter nor digit: sources.orders.sqlite.connection_string
// with the prefix OUTMILL is OUTMILL_SOURCES_ORDERS_SQLITE_CONNECTION_STRING.
// Without a prefix it is the key alone.
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

// Resolve finds the URL of a store and the provider that opens it, and opens
// nothing.
//
// Errors: *ConnectionNotFoundError, *UnknownProviderError, *outmill.InvalidURLError,
// What is set but wrong is an error too; no later place
// takes over in silence.
func Resolve(conn Connection) (Resolution, error) {
	search := search{conn: conn}
	return search.run()
}

// Open resolves the connection, opens the store, logs the choice (store,
// provider, where the URL was found, the URL redacted, the workers' defaults) and
// returns both. A nil logger logs nothing. The caller closes the store. Errors are
// those of [Resolve] and, with the place where the URL was found, of [outmill.Open].
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

// ConnectionNotFoundError lists where a [Connection] looked in vain. It is an
// [outmill.ErrInvalidConfig].
type ConnectionNotFoundError struct {
	// Looked lists the places in the order in which they were looked at:
	// Connection.URL and the keys of settings.
	Looked []string
	// NoLookup says that Connection.Lookup is nil, so that no settings could be
	// looked at.
	NoLookup bool
}

func (e *ConnectionNotFoundError) Error() string {
	remedy := "set one of them"
	if e.NoLookup {
		remedy = "set it, or set Connection.Lookup for settings to be looked at too"
	}
	return fmt.Sprintf("%s: no connection to a store; looked at, in this order: %s; %s",
		outmill.ErrInvalidConfig, strings.Join(e.Looked, ", "), remedy)
}

// Is makes errors.Is(err, outmill.ErrInvalidConfig) true.
func (e *ConnectionNotFoundError) Is(target error) bool { return target == outmill.ErrInvalidConfig }

// UnknownProviderError says that the provider of a [Connection] is not
// registered, or that none is: most often an import is missing. It is an
// [outmill.ErrInvalidConfig].
type UnknownProviderError struct {
	// Provider is the name that is not registered; "" where none was named and
	// none is registered.
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

// stores are the packages of the module that have a provider of their name.
var stores = []string{"mongo", "postgres", "sqlite", "sqlserver"}

// search is one run of Resolve; it notes each place that it looks at.
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

// explicit decides about a URL that is not tied to a provider by its place.
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

// choose refuses a URL of another provider, because the place says whose it must be.
func choose(provider outmill.Provider, from, url string) (Resolution, error) {
	opens, err := outmill.ProviderFor(url)
	if opens.Name == provider.Name {
		return resolved(provider, from, url)
	}
	var malformed *outmill.InvalidURLError
	if !errors.As(err, &malformed) || len(malformed.Registered) > 0 {
		err = &outmill.InvalidURLError{
			URL:    outmill.RedactURL(url),
			Reason: fmt.Sprintf("is not for the provider %s: want the scheme %s", provider.Name, strings.Join(provider.Schemes, " or ")),
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
