package outmill_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

// The providers of this test binary. They only record which provider opens which URL; the
// tests of the stores' packages open real stores.
func init() {
	outmill.RegisterProvider(outmill.Provider{Name: "high", Schemes: []string{"high", "high+tls"}, Priority: 1020, Open: openFake})
	outmill.RegisterProvider(outmill.Provider{Name: "low", Schemes: []string{"low"}, Priority: 1010, Open: openFake})
	outmill.RegisterProvider(outmill.Provider{Name: "alsolow", Schemes: []string{"alsolow"}, Priority: 1010, Open: openFake})
	outmill.RegisterProvider(outmill.Provider{Name: "broken", Schemes: []string{"broken"}, Priority: -1,
		Open: func(context.Context, string, watermill.LoggerAdapter) (outmill.Store, error) { return nil, errHandler }})
	outmill.RegisterProvider(outmill.Provider{Name: "empty", Schemes: []string{"empty"}, Priority: -1,
		Open: func(context.Context, string, watermill.LoggerAdapter) (outmill.Store, error) {
			return (*openedStore)(nil), nil
		}})
}

type openedStore struct {
	outmill.Store
	url    string
	logger watermill.LoggerAdapter
}

func (*openedStore) Name() string { return "fake" }

func openFake(_ context.Context, url string, logger watermill.LoggerAdapter) (outmill.Store, error) {
	return &openedStore{url: url, logger: logger}, nil
}

func open(_ context.Context, _ string, _ watermill.LoggerAdapter) (outmill.Store, error) {
	return nil, nil
}

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("Open picks the provider by scheme", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{"high://u:P@h/db", "high+tls://H", "low:file.db?x=HIGH:1"} {
			store, err := outmill.Open(t.Context(), url, nil)
			require.NoError(t, err)
			opened := store.(*openedStore)
			require.Equal(t, url, opened.url, "the provider gets the URL as it is, password included")
			require.NotNil(t, opened.logger, "a nil logger never reaches a provider")
		}
	})

	t.Run("the scheme of a URL may be written in capitals", func(t *testing.T) {
		t.Parallel()
		store, err := outmill.Open(t.Context(), "High+TLS://U:P@H", nil)
		require.NoError(t, err)
		require.Equal(t, "high+tls://U:P@H", store.(*openedStore).url, "providers need not care")
	})

	t.Run("Open with a typed nil logger logs nothing", func(t *testing.T) {
		t.Parallel()
		var logger *watermill.StdLoggerAdapter
		store, err := outmill.Open(t.Context(), "high:x", logger)
		require.NoError(t, err)
		require.Equal(t, watermill.NopLogger{}, store.(*openedStore).logger)
	})

	t.Run("an unknown scheme lists the registered ones and the import to add", func(t *testing.T) {
		t.Parallel()
		_, err := outmill.Open(t.Context(), "cassandra://u:S3CRET@h/db", nil)
		var unknown *outmill.InvalidURLError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.Subset(t, unknown.Registered, []string{"high", "high+tls", "low"})
		require.IsIncreasing(t, unknown.Registered)
		require.ErrorContains(t, err, "cassandra:")
		require.ErrorContains(t, err, "high, high+tls")
		require.ErrorContains(t, err, `import _ "github.com/outmill/outmill/sqlite"`)
		require.NotContains(t, err.Error(), "S3CRET")
	})

	t.Run("with no provider at all the import is named", func(t *testing.T) {
		t.Parallel()
		var none outmill.Registry
		_, err := none.ForURL("sqlite:orders.db")
		require.EqualError(t, err, `outmill: invalid configuration: store URL "sqlite:orders.db" has a scheme that no registered store opens `+
			`(registered schemes: none): add import _ "github.com/outmill/outmill/sqlite"`)
	})

	t.Run("text that is not a URL is refused and not shown", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{"", "S3CRET", "/var/S3CRET.db", "user=me password=S3CRET host=h", "://S3CRET", "1high://S3CRET",
			"hi gh:S3CRET", "high://u:S3CRET@h\x00"} {
			_, err := outmill.Open(t.Context(), url, nil)
			var invalid *outmill.InvalidURLError
			require.ErrorAs(t, err, &invalid, "%q", url)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.NotContains(t, err.Error(), "S3CRET")
		}
	})

	t.Run("a provider that fails is named with the redacted URL", func(t *testing.T) {
		t.Parallel()
		store, err := outmill.Open(t.Context(), "broken://u:S3CRET@h/db", nil)
		require.ErrorIs(t, err, errHandler)
		require.Nil(t, store)
		require.EqualError(t, err, "outmill: open broken://u:xxxxx@h/db: handler failed")

		store, err = outmill.Open(t.Context(), "empty:x", nil)
		require.ErrorContains(t, err, `the provider "empty" returned no store and no error`)
		require.Nil(t, store, "not a typed nil")
	})

	t.Run("Providers lists the highest priority first and equals by name", func(t *testing.T) {
		t.Parallel()
		var names []string
		for _, provider := range outmill.Providers() {
			names = append(names, provider.Name)
		}
		require.Equal(t, []string{"high", "alsolow", "low", "broken", "empty", "sqlite"}, names)
	})

	t.Run("registering panics on mistakes of the program only", func(t *testing.T) {
		t.Parallel()
		for want, provider := range map[string]outmill.Provider{
			"Name is empty":                              {Schemes: []string{"x"}, Open: open},
			"Open is nil":                                {Name: "x", Schemes: []string{"x"}},
			"Schemes is empty":                           {Name: "x", Open: open},
			`"X" is not a URL scheme in lower case`:      {Name: "x", Schemes: []string{"X"}, Open: open},
			`"x:" is not a URL scheme in lower case`:     {Name: "x", Schemes: []string{"x:"}, Open: open},
			`"1x" is not a URL scheme in lower case`:     {Name: "x", Schemes: []string{"1x"}, Open: open},
			`"" is not a URL scheme in lower case`:       {Name: "x", Schemes: []string{""}, Open: open},
			"high is registered already":                 {Name: "high", Schemes: []string{"x"}, Open: open},
			`the scheme "high" is registered already, b`: {Name: "x", Schemes: []string{"x", "high"}, Open: open},
			`the scheme "x" is listed twice`:             {Name: "x", Schemes: []string{"x", "x"}, Open: open},
		} {
			t.Run(want, func(t *testing.T) {
				t.Parallel()
				defer func() {
					err, _ := recover().(error)
					require.ErrorContains(t, err, want)
					require.NotContains(t, outmill.Providers(), "x", "nothing was registered")
				}()
				outmill.RegisterProvider(provider)
			})
		}
	})

	t.Run("a registered provider does not change with the callers slice", func(t *testing.T) {
		t.Parallel()
		var registry outmill.Registry
		schemes := []string{"one"}
		require.NoError(t, registry.Add(outmill.Provider{Name: "p", Schemes: schemes, Open: open}))
		schemes[0] = "two"
		provider, err := registry.ForURL("one:x")
		require.NoError(t, err)
		require.Equal(t, []string{"one"}, provider.Schemes)
	})

	t.Run("redaction", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct{ name, url, want string }{
			{"a password", "postgres://me:pw@db:5432/orders?sslmode=require", "postgres://me:xxxxx@db:5432/orders?sslmode=require"},
			{"nothing to hide", "postgres://me@db/orders", "postgres://me@db/orders"},
			{"a list of hosts", "mongodb://me:pw@a:27017,b:27017/?replicaSet=rs", "mongodb://me:xxxxx@a:27017,b:27017/?replicaSet=rs"},
			{"an empty password", "postgres://me:@db/orders", "postgres://me:xxxxx@db/orders"},
			{"a password that was not escaped", "postgres://me:a/b?c#d@e@db/orders", "postgres://me:xxxxx@db/orders"},
			{"a parameter, and all behind it", "postgres://db/orders?user=me&Password=pw&sslmode=off",
				"postgres://db/orders?user=me&Password=xxxxx"},
			{"a parameter in another dialect", "sqlserver:server=db;user id=sa;password={a;b}", "sqlserver:server=db;user id=sa;password=xxxxx"},
			{"a file", "sqlite:orders.db?_pragma=foreign_keys(1)&_txlock=immediate", "sqlite:orders.db?_pragma=foreign_keys(1)&_txlock=immediate"},
			{"a path with an @", "sqlite:///srv/me@work:1/orders.db", "sqlite:///srv/me@work:1/orders.db"},
			{"a relative path with an @", "sqlite:me@work/orders.db", "sqlite:me@work/orders.db"},
			{"in memory", "sqlite::memory:", "sqlite::memory:"},
			{"a forgotten scheme", "me:pw@db:5432/orders", "me:xxxxx"},
			{"no URL", "host=db password=pw", "xxxxx"},
			{"nothing", "", "xxxxx"},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				require.Equal(t, tc.want, outmill.RedactURL(tc.url))
			})
		}
	})

	t.Run("no password gets through redaction", func(t *testing.T) {
		t.Parallel()
		nasty := rapid.StringOfN(rapid.RuneFrom([]rune(":/?#@&;=%{}[], \n\"'ü")), 0, 6, -1)
		rapid.Check(t, func(t *rapid.T) {
			password := "S3" + nasty.Draw(t, "before") + "CR3T" + nasty.Draw(t, "after") + "X9"
			url := rapid.SampledFrom([]string{
				"postgres://me:" + password + "@db:5432/orders?sslmode=require",
				"mongodb+srv://:" + password + "@a,b/",
				"postgres://db/orders?password=" + password,
				"postgres://me@db/orders?a=b&sslPassword=" + password + "&c=d",
				"sqlserver:server=db;pwd=" + password + ";x=y",
				"mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:" + password,
				"me:" + password + "@db:5432/orders",
			}).Draw(t, "url")
			shown := outmill.RedactURL(url)
			for _, secret := range []string{"S3", "CR3T", "X9"} {
				require.NotContains(t, shown, secret, "of %q", url)
			}
			require.True(t, strings.HasPrefix(shown, url[:strings.Index(url, ":")+1]))
		})
	})
}
