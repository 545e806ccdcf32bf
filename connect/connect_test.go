package connect_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
	"github.com/outmill/outmill/internal/testenv/journal"
)

func TestConnect(t *testing.T) {
	t.Parallel()

	t.Run("where a connection is found", func(t *testing.T) {
		t.Parallel()
		settings := map[string]string{
			"sources.default.high.connection_string":     "high:default-source",
			"sources.orders.low.connection_string":       "low:orders-source",
			"sources.bills.high.connection_string":       "high:bills-high",
			"sources.bills.low.connection_string":        "low:bills-low",
			"sources.blank.low.connection_string":        "  ",
			"connection_strings.low":                     "low:by-provider",
			"connection_strings.main":                    " low:main ",
			"connection_strings.tls":                     "high+tls://h",
			"connection_strings.elsewhere":               "cassandra://h",
			"sources.equal.low.connection_string":        "low:equal",
			"sources.equal.alsolow.connection_string":    "alsolow:equal",
			"sources.stray.high.connection_string":       "low:not-high",
			"sources.stray.low.connection_string":        "low:never-reached",
			"sources.malformed.low.connection_string":    "no scheme S3CRET",
			"sources.a.b low.c.high.connection_string":   "high:odd-name",
			"sources.unregistered.zzz.connection_string": "zzz:x",
		}
		const explicit = "Connection.URL"
		for _, tc := range []struct {
			name           string
			conn           connect.Connection
			provider, from string
			url            string
		}{
			{"the explicit URL wins over all settings", connect.Connection{URL: "low:mine", Source: "bills"}, "low", explicit, "low:mine"},
			{"the explicit URL says which provider, whatever the priorities", connect.Connection{URL: "alsolow:x"}, "alsolow", explicit,
				"alsolow:x"},
			{"a blank URL counts as none", connect.Connection{URL: " \n", Source: "orders"}, "low", "sources.orders.low.connection_string",
				"low:orders-source"},
			{"blanks around a URL are dropped", connect.Connection{URL: " low:mine\n"}, "low", explicit, "low:mine"},
			{"without a source it is the default one", connect.Connection{}, "high", "sources.default.high.connection_string",
				"high:default-source"},
			{"the named source for the named provider", connect.Connection{Provider: "low", Source: "bills"}, "low",
				"sources.bills.low.connection_string", "low:bills-low"},
			{"without a provider the higher priority wins", connect.Connection{Source: "bills"}, "high", "sources.bills.high.connection_string",
				"high:bills-high"},
			{"among equal priorities the first by name wins", connect.Connection{Source: "equal"}, "alsolow",
				"sources.equal.alsolow.connection_string", "alsolow:equal"},
			{"a provider with settings wins over a higher one without", connect.Connection{Source: "orders"}, "low",
				"sources.orders.low.connection_string", "low:orders-source"},
			{"the connection string is the provider's where none is named", connect.Connection{Provider: "low", Source: "nowhere"}, "low",
				"connection_strings.low", "low:by-provider"},
			{"a setting that is blank counts as none", connect.Connection{Provider: "low", Source: "blank"}, "low", "connection_strings.low",
				"low:by-provider"},
			{"a source wins over a named connection string", connect.Connection{Provider: "low", Source: "orders", ConnectionString: "main"}, "low",
				"sources.orders.low.connection_string", "low:orders-source"},
			{"a named connection string says which provider by its scheme", connect.Connection{Source: "nowhere", ConnectionString: "main"}, "low",
				"connection_strings.main", "low:main"},
			{"any source wins over a connection string that is no provider's", connect.Connection{Source: "orders", ConnectionString: "tls"}, "low",
				"sources.orders.low.connection_string", "low:orders-source"},
			{"any scheme of the provider will do", connect.Connection{Provider: "high", Source: "nowhere", ConnectionString: "tls"}, "high",
				"connection_strings.tls", "high+tls://h"},
			{"a source's name may be anything", connect.Connection{Source: "a.b low.c"}, "high", "sources.a.b low.c.high.connection_string",
				"high:odd-name"},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				tc.conn.Lookup = connect.LookupMap(settings)
				choice, err := connect.Resolve(tc.conn)
				require.NoError(t, err)
				require.Equal(t, connect.Resolution{URL: tc.url, Provider: tc.provider, From: tc.from}, choice)
			})
		}

		for _, tc := range []struct {
			name string
			conn connect.Connection
			as   any
			want []string
		}{
			{"a source with another provider's URL", connect.Connection{Source: "stray"}, new(*outmill.InvalidURLError),
				[]string{"sources.stray.high.connection_string", `"low:not-high"`, "want the scheme high or high+tls"}},
			{"a source with what is no URL", connect.Connection{Source: "malformed", Provider: "low"}, new(*outmill.InvalidURLError),
				[]string{"sources.malformed.low.connection_string", "has no scheme"}},
			{"an explicit URL of another provider than the named one", connect.Connection{URL: "low:x", Provider: "high"},
				new(*outmill.InvalidURLError),
				[]string{"Connection.URL", "does not belong to the provider high"}},
			{"a named connection string of another provider than the named one",
				connect.Connection{Provider: "high", Source: "nowhere", ConnectionString: "main"},
				new(*outmill.InvalidURLError), []string{"connection_strings.main", "does not belong to the provider high"}},
			{"an explicit URL that no provider opens", connect.Connection{URL: "cassandra://h"}, new(*outmill.InvalidURLError),
				[]string{"Connection.URL", "cassandra:", "high, high+tls"}},
			{"a named connection string that no provider opens", connect.Connection{Source: "nowhere", ConnectionString: "elsewhere"},
				new(*outmill.InvalidURLError), []string{"connection_strings.elsewhere", "cassandra:", "high, high+tls"}},
			{"a provider that is not registered", connect.Connection{Provider: "zzz", Source: "unregistered"}, new(*connect.UnknownProviderError),
				[]string{`Connection.Provider "zzz" is not registered`, "high, low", "import _"}},
			{"a provider that is not registered, with a URL", connect.Connection{Provider: "sqlserver", URL: "low:x"},
				new(*connect.UnknownProviderError),
				[]string{"sqlserver"}},
		} {
			t.Run(tc.name+" is an error, and no later place takes over", func(t *testing.T) {
				t.Parallel()
				tc.conn.Lookup = connect.LookupMap(settings)
				choice, err := connect.Resolve(tc.conn)
				require.ErrorAs(t, err, tc.as)
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
				require.Zero(t, choice)
				for _, part := range tc.want {
					require.ErrorContains(t, err, part)
				}
				require.NotContains(t, err.Error(), "S3CRET")
			})
		}
	})

	t.Run("the error for no URL lists the searched places in order", func(t *testing.T) {
		t.Parallel()
		_, err := connect.Resolve(connect.Connection{Provider: "low", Source: "orders", Lookup: connect.LookupMap(nil)})
		var missing *connect.ConnectionNotFoundError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, []string{"Connection.URL", "sources.orders.low.connection_string", "connection_strings.low"}, missing.Looked)
		require.EqualError(t, err, "outmill: invalid configuration: no connection to a store; searched, in this order: "+
			"Connection.URL, sources.orders.low.connection_string, connection_strings.low; set one of them")

		_, err = connect.Resolve(connect.Connection{ConnectionString: "main", Lookup: connect.LookupMap(nil)})
		require.ErrorAs(t, err, &missing)
		require.Equal(t, []string{
			"Connection.URL", "sources.default.high.connection_string",
			"sources.default.alsolow.connection_string", "sources.default.low.connection_string",
		}, missing.Looked[:4], "by priority, then by name")
		require.Equal(t, "connection_strings.main", missing.Looked[len(missing.Looked)-1], "what all share, once, at the end")
		require.Len(t, missing.Looked, len(outmill.Providers())+2)
	})

	t.Run("the error for no registered store names an import", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, &connect.UnknownProviderError{},
			`outmill: invalid configuration: no store is registered: import the package of a store, `+
				`such as import _ "github.com/outmill/outmill/sqlite"`)
	})

	t.Run("without a lookup only the URL is looked at", func(t *testing.T) {
		t.Parallel()
		_, err := connect.Resolve(connect.Connection{})
		var missing *connect.ConnectionNotFoundError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, []string{"Connection.URL"}, missing.Looked)
		require.ErrorContains(t, err, "set Connection.Lookup")
	})

	t.Run("LookupMap keeps a copy", func(t *testing.T) {
		t.Parallel()
		settings := map[string]string{"a": "1"}
		lookup := connect.LookupMap(settings)
		settings["a"], settings["b"] = "2", "2"
		value, found := lookup("a")
		require.True(t, found)
		require.Equal(t, "1", value)
		_, found = lookup("b")
		require.False(t, found)
	})

	t.Run("a resolution never prints the password", func(t *testing.T) {
		t.Parallel()
		choice, err := connect.Resolve(connect.Connection{URL: "high://u:S3CRET@h/db"})
		require.NoError(t, err)
		require.Equal(t, "high from Connection.URL: high://u:xxxxx@h/db", choice.String())
		for _, verb := range []string{"%v", "%+v", "%s", "%q", "%#v"} {
			require.NotContains(t, fmt.Sprintf(verb, choice), "S3CRET", verb)
			require.NotContains(t, fmt.Sprintf(verb, &choice), "S3CRET", verb)
		}
	})

	t.Run("Open logs its choice and opens it", func(t *testing.T) {
		t.Parallel()
		logger := journal.New()
		store, choice, err := connect.Open(t.Context(), connect.Connection{
			Source: "orders",
			Lookup: connect.LookupMap(map[string]string{
				"sources.orders.low.connection_string": "low://u:S3CRET@h/db?lease=1m&x=y&batch_size=7&max_attempts=-1",
			}),
		}, logger)
		require.NoError(t, err)
		require.Equal(t, "low://u:S3CRET@h/db?x=y", store.(*openedStore).url)
		require.Equal(t, outmill.WorkerDefaults{Lease: time.Minute, BatchSize: 7, MaxAttempts: -1}, choice.Defaults)
		require.Same(t, logger, store.(*openedStore).logger)
		require.Contains(t, logger.Lines(), journal.Line{
			Level: watermill.InfoLogLevel,
			Msg:   "Chose the store's connection",
			Fields: watermill.LogFields{
				"store": "fake", "provider": "low", "from": "sources.orders.low.connection_string", "url": "low://u:xxxxx@h/db?x=y",
				"lease": "1m0s", "batch_size": 7, "max_attempts": -1,
			},
		})
	})

	t.Run("Open opens no store if it finds no URL", func(t *testing.T) {
		t.Parallel()
		logger := journal.New()
		store, _, err := connect.Open(t.Context(), connect.Connection{Provider: "low", Lookup: connect.LookupMap(nil)}, logger)
		require.ErrorAs(t, err, new(*connect.ConnectionNotFoundError))
		require.Nil(t, store)
		require.Empty(t, logger.Lines())

		store, _, err = connect.Open(t.Context(), connect.Connection{
			Provider: "broken", Lookup: connect.LookupMap(map[string]string{"connection_strings.broken": "broken:x"}),
		}, logger)
		require.ErrorIs(t, err, errOpen)
		require.ErrorContains(t, err, "connection_strings.broken: ")
		require.Nil(t, store)
		require.Empty(t, logger.Lines())

		store, _, err = connect.Open(t.Context(), connect.Connection{URL: "low:x"}, nil)
		require.NoError(t, err)
		require.NotNil(t, store)
	})

	t.Run("errors about urls are configuration errors and nothing else", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{
			&outmill.InvalidURLError{}, &connect.UnknownProviderError{}, &connect.ConnectionNotFoundError{},
		} {
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.False(t, errors.Is(err, outmill.ErrNotFound), "%T", err)
		}
	})
}

func TestConnect_Serial(t *testing.T) {
	// Not parallel: it sets the environment.
	t.Run("LookupEnv names variables after prefix and key", func(t *testing.T) {
		t.Setenv("OUTMILL_SOURCES_ORDERS_EU_2B_LOW_CONNECTION_STRING", "low:env")
		t.Setenv("CONNECTION_STRINGS_LOW", "low:no-prefix")

		choice, err := connect.Resolve(connect.Connection{Provider: "low", Source: "orders-eu.2B", Lookup: connect.LookupEnv("OUTMILL")})
		require.NoError(t, err)
		require.Equal(t, "low:env", choice.URL)

		choice, err = connect.Resolve(connect.Connection{Provider: "low", Lookup: connect.LookupEnv("")})
		require.NoError(t, err)
		require.Equal(t, "low:no-prefix", choice.URL)

		_, found := connect.LookupEnv("OUTMILL")("connection_strings.low")
		require.False(t, found)
	})
}
