package outmill

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// Provider is a kind of store that can be opened by URL. A store's package registers its
// provider in init, so that a program chooses its stores by import, like the drivers of
// database/sql.
type Provider struct {
	// Name identifies the provider in settings and logs: sqlite, postgres, ….
	Name string
	// Schemes are the URL schemes that the provider opens, in lower case.
	Schemes []string
	// Priority decides between providers if a connection names none: the highest wins, and
	// among equals the first by name. Of the stores of this module mongo has 20, mysql, postgres
	// and sqlserver have 10, and sqlite has -10, because an embedded store is the last resort. 0
	// is between them.
	Priority int
	// Open opens the store behind a URL that begins with one of the Schemes, in lower case,
	// and has no parameters of [WorkerDefaults]; the logger is never nil. The store owns the
	// resources that it opens and closes them in Close. Errors do not contain the URL, which
	// may hold a password; [Open] adds the redacted URL.
	Open func(ctx context.Context, url string, logger watermill.LoggerAdapter) (Store, error)
}

// RegisterProvider makes a provider known to [Open] and to package connect. It is meant for
// init functions. Like database/sql.Register, it panics on mistakes that only the program
// can cause: an empty name, no schemes, a scheme that is not a URL scheme in lower case, a
// nil Open, or a name or scheme that is registered already.
func RegisterProvider(provider Provider) {
	if err := providers.add(provider); err != nil {
		panic(err)
	}
}

// Providers returns the registered providers, the one with the highest priority first
// and equals by name.
func Providers() []Provider { return providers.byPriority() }

// ProviderFor returns the provider that is registered for the scheme of the URL. The
// error is an *InvalidURLError, which names the import that may be missing.
func ProviderFor(url string) (Provider, error) { return providers.forURL(url) }

// Open opens the store behind a URL with the provider that is registered for its scheme. A
// nil logger logs nothing. The caller closes the store. [DefaultsOf] returns the settings
// of subscribers and forwarders in the URL.
//
// Errors: *InvalidURLError, or the provider's own, wrapped. None of them shows a password.
func Open(ctx context.Context, url string, logger watermill.LoggerAdapter) (Store, error) {
	provider, err := providers.forURL(url)
	if err != nil {
		return nil, err
	}
	_, rest, err := DefaultsOf(url)
	if err != nil {
		return nil, err
	}
	return provider.open(ctx, lowerScheme(rest), logger)
}

// InvalidURLError says what is wrong with a store's URL. It is an
// [ErrInvalidConfig].
type InvalidURLError struct {
	// URL is the URL as [RedactURL] shows it.
	URL string
	// Reason says what is wrong and what a valid value is.
	Reason string
	// Registered are the registered schemes, sorted. It is set only if the scheme of the URL
	// is not among them; the usual cause is a missing import.
	Registered []string
}

func (e *InvalidURLError) Error() string {
	return fmt.Sprintf("%s: store URL %q %s", ErrInvalidConfig, e.URL, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidConfig) true.
func (e *InvalidURLError) Is(target error) bool { return target == ErrInvalidConfig }

// storeImports are the import paths of this module's stores, by scheme and provider name,
// for the remedy in an error. The root package cannot import the stores.
var storeImports = map[string]string{
	"mongo":       "github.com/outmill/outmill/mongo",
	"mongodb":     "github.com/outmill/outmill/mongo",
	"mongodb+srv": "github.com/outmill/outmill/mongo",
	"mysql":       "github.com/outmill/outmill/mysql",
	"mariadb":     "github.com/outmill/outmill/mysql",
	"postgres":    "github.com/outmill/outmill/postgres",
	"postgresql":  "github.com/outmill/outmill/postgres",
	"sqlite":      "github.com/outmill/outmill/sqlite",
	"sqlserver":   "github.com/outmill/outmill/sqlserver",
}

func importHint(name string) string {
	if path, ok := storeImports[name]; ok {
		return fmt.Sprintf("add import _ %q", path)
	}
	return fmt.Sprintf("import the package of the store that you want, such as import _ %q", storeImports["sqlite"])
}

const redacted = "xxxxx"

var (
	schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)
	secretPattern = regexp.MustCompile(`(?is)([^?&;=]*(?:pass|pwd|secret|token|credential|key|mechanismprop)[^?&;=]*=).*`)
)

// fileSchemes are those before a path, which may have an @.
var fileSchemes = []string{"sqlite:", "file:"}

// RedactURL returns the URL for logs and errors: without its password, and without all text
// after the first parameter whose name suggests a secret. If it cannot tell where a
// password ends, it hides too much rather than too little. Of text that is not a URL it
// shows nothing.
func RedactURL(url string) string {
	scheme := schemePattern.FindString(url)
	if scheme == "" {
		return redacted
	}
	rest := url[len(scheme):]
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		rest = "//" + redactPassword(after)
	} else if strings.Contains(rest, "@") && !slices.Contains(fileSchemes, strings.ToLower(scheme)) {
		// The scheme may be missing, and what looks like one is the user.
		return scheme + redacted
	}
	return scheme + secretPattern.ReplaceAllString(rest, "${1}"+redacted)
}

// redactPassword does not use net/url, which refuses MongoDB's lists of hosts, and ends the
// authority at a / or ? inside a password that was not escaped.
func redactPassword(afterSlashes string) string {
	userinfoEnd := strings.LastIndexByte(afterSlashes, '@')
	if userinfoEnd < 0 || strings.HasPrefix(afterSlashes, "/") {
		return afterSlashes
	}
	user, _, hasPassword := strings.Cut(afterSlashes[:userinfoEnd], ":")
	if !hasPassword {
		return afterSlashes
	}
	return user + ":" + redacted + afterSlashes[userinfoEnd:]
}

func schemeOf(url string) (string, error) {
	found := schemePattern.FindString(url)
	if found == "" {
		return "", &InvalidURLError{URL: RedactURL(url), Reason: "has no scheme: want a URL such as sqlite:orders.db"}
	}
	if strings.IndexByte(url, 0) >= 0 {
		return "", &InvalidURLError{URL: RedactURL(url), Reason: "has a NUL byte"}
	}
	return strings.ToLower(strings.TrimSuffix(found, ":")), nil
}

func lowerScheme(url string) string {
	return schemePattern.ReplaceAllStringFunc(url, strings.ToLower)
}

func (p Provider) open(ctx context.Context, url string, logger watermill.LoggerAdapter) (Store, error) {
	if IsNil(logger) {
		logger = watermill.NopLogger{}
	}
	store, err := p.Open(ctx, url, logger)
	if err != nil {
		return nil, fmt.Errorf("outmill: open %s: %w", RedactURL(url), err)
	}
	if IsNil(store) {
		return nil, fmt.Errorf("outmill: open %s: the provider %q returned no store and no error", RedactURL(url), p.Name)
	}
	return store, nil
}

func (p Provider) validate() error {
	if p.Name == "" {
		return fmt.Errorf("outmill: RegisterProvider: Name is empty")
	}
	if p.Open == nil {
		return fmt.Errorf("outmill: RegisterProvider: %s: Open is nil", p.Name)
	}
	if len(p.Schemes) == 0 {
		return fmt.Errorf("outmill: RegisterProvider: %s: Schemes is empty", p.Name)
	}
	for _, scheme := range p.Schemes {
		if schemePattern.FindString(scheme+":") != scheme+":" || scheme != strings.ToLower(scheme) {
			return fmt.Errorf("outmill: RegisterProvider: %s: %q is not a URL scheme in lower case", p.Name, scheme)
		}
	}
	return nil
}

var providers = &registry{}

// registry holds the providers by name and by scheme.
type registry struct {
	mu       sync.RWMutex
	byName   map[string]Provider
	byScheme map[string]Provider
}

func (r *registry) add(p Provider) error {
	if err := p.validate(); err != nil {
		return err
	}
	p.Schemes = slices.Clone(p.Schemes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byName[p.Name]; taken {
		return fmt.Errorf("outmill: RegisterProvider: %s is registered already", p.Name)
	}
	for i, scheme := range p.Schemes {
		if other, taken := r.byScheme[scheme]; taken {
			return fmt.Errorf("outmill: RegisterProvider: %s: the scheme %q is registered already, by %s", p.Name, scheme, other.Name)
		}
		if slices.Contains(p.Schemes[:i], scheme) {
			return fmt.Errorf("outmill: RegisterProvider: %s: the scheme %q is listed twice", p.Name, scheme)
		}
	}
	if r.byName == nil {
		r.byName, r.byScheme = map[string]Provider{}, map[string]Provider{}
	}
	r.byName[p.Name] = p
	for _, scheme := range p.Schemes {
		r.byScheme[scheme] = p
	}
	return nil
}

func (r *registry) forURL(url string) (Provider, error) {
	scheme, err := schemeOf(url)
	if err != nil {
		return Provider{}, err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, ok := r.byScheme[scheme]
	if !ok {
		registered := slices.Sorted(maps.Keys(r.byScheme))
		return Provider{}, &InvalidURLError{URL: RedactURL(url),
			Reason: fmt.Sprintf("has a scheme that no registered store opens (registered schemes: %s): %s",
				cmp.Or(strings.Join(registered, ", "), "none"), importHint(scheme)), Registered: registered}
	}
	return p, nil
}

// byPriority sorts by name among equal priorities.
func (r *registry) byPriority() []Provider {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.byName), func(a, b Provider) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
}
