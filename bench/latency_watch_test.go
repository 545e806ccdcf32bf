package main

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestLatencyWatch(t *testing.T) {
	t.Run("a count of acks that stands still is an error and no hang", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			acked := newAckCount(3)
			acked.add(2)
			require.ErrorContains(t, acked.wait(t.Context()), "2 of 3 messages")
			acked.add(1)
			require.NoError(t, acked.wait(t.Context()))
		})
	})
}
