package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	t.Run("each message is counted once, though Kafka delivers it often and the consumer is killed", func(t *testing.T) {
		t.Parallel()
		sum, err := run(t.Context(), options{messages: 300, kills: 5})
		require.NoError(t, err)
		require.Equal(t, 300, sum.counted)
		require.Greater(t, sum.deliveries, 600, "it was delivered more than once")
	})
	t.Run("options that make no sense are refused", func(t *testing.T) {
		t.Parallel()
		_, err := run(t.Context(), options{})
		require.Error(t, err)
	})
}
