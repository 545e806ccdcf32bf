package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

func TestConfigOf(t *testing.T) {
	t.Parallel()

	t.Run("the parameters of the store become its configuration, and the others stay in the URL", func(t *testing.T) {
		t.Parallel()
		rest, config, err := postgres.ConfigOf("postgres://me:S3CRET@host/shop?pool_max_conns=7&retain=24h&table_prefix=web_")
		require.NoError(t, err)
		require.Equal(t, "postgres://me:S3CRET@host/shop?pool_max_conns=7", rest)
		require.Equal(t, postgres.Config{Retain: 24 * time.Hour, TablePrefix: "web_"}, config)
	})

	t.Run("a parameter that makes no sense is refused by its name, without the password", func(t *testing.T) {
		t.Parallel()
		for want, parameter := range map[string]string{"retain": "retain=long", "do you mean fair_topics?": "fair_topic=a"} {
			_, _, err := postgres.ConfigOf("postgres://me:S3CRET@host/shop?" + parameter)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "S3CRET")
		}
	})
}
