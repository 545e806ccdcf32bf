package storekit_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestParseURL(t *testing.T) {
	t.Parallel()

	t.Run("an error has no part of a password that was not escaped, and says how to escape it", func(t *testing.T) {
		t.Parallel()
		nasty := rapid.StringOfN(rapid.RuneFrom([]rune(":/?#@&;=%{}[], \n\"'ü7")), 0, 6, -1)
		rapid.Check(t, func(t *rapid.T) {
			password := nasty.Draw(t, "first") + "S3" + nasty.Draw(t, "before") + "CR3T" + nasty.Draw(t, "after") + "X9"
			url := rapid.SampledFrom([]string{
				"postgres://me:" + password + "@db:5432/orders?sslmode=require",
				"mongodb://me:" + password + "@a:1,b:2/orders",
				"postgres://db/orders?password=" + password,
			}).Draw(t, "url")
			_, err := storekit.ParseURL(url)
			if err == nil {
				return
			}
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "/ as %2F")
			for _, secret := range []string{"S3", "CR3T", "X9"} {
				require.NotContains(t, err.Error(), secret, "of %q", url)
			}
		})
	})

	t.Run("a password that would be taken for something else is refused", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{
			// It would be the name of the database, the fragment, and the name of a parameter.
			"postgres://me:7/S3CRET@db/orders", "postgres://me:a@b/S3CRET@db/orders",
			"postgres://me:#S3CRET@db/orders", "postgres://me:7?S3CRET@db/orders",
		} {
			_, err := storekit.ParseURL(url)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, url)
			require.NotContains(t, err.Error(), "S3CRET")
		}
	})

	t.Run("an @ may be in a value, and escaped elsewhere", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{
			"postgres://me:p%40w%2F@db:5432/orders%40home?application_name=me@work", "mongodb://a:1,b:2/orders?appName=me@work", "?_pragma=a@b",
		} {
			parameters, err := storekit.ParseURL(url)
			require.NoError(t, err, url)
			require.NotNil(t, parameters)
		}
	})

	t.Run("the error for a URL without a password names the mistake in the URL", func(t *testing.T) {
		t.Parallel()
		_, err := storekit.ParseURL("postgres://db:x/orders")
		require.ErrorContains(t, err, `invalid port ":x"`)
	})

	t.Run("the fields of a Config are those with the names of the parameters", func(t *testing.T) {
		t.Parallel()
		type text string
		var config struct {
			Name          text
			ListenURL     string
			DedupWindow   time.Duration
			EnsureSchema  bool
			FairTopics    []string
			AppendLevel   slog.Leveler
			Other, Retain time.Duration
		}
		parameters, err := storekit.ParseURL("?name=n&listen_url=l&dedup_window=2s&ensure_schema=true&fair_topics=a,b&append_level=info&other=1s")
		require.NoError(t, err)
		parameters.Fields(&config, "name", "listen_url", "dedup_window", "ensure_schema", "fair_topics", "append_level", "retain")
		require.NoError(t, parameters.Err())
		require.EqualValues(t, "n", config.Name)
		require.Equal(t, "l", config.ListenURL)
		require.Equal(t, 2*time.Second, config.DedupWindow)
		require.True(t, config.EnsureSchema)
		require.Equal(t, []string{"a", "b"}, config.FairTopics)
		require.Equal(t, slog.LevelInfo, config.AppendLevel)
		require.Zero(t, config.Other+config.Retain, "not named, and not in the URL")
		require.Equal(t, "other=1s", parameters.URL().RawQuery)
	})
}
