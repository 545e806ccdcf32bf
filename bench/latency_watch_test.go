package main

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func Test_a_count_of_acks_that_stands_still_is_an_error_and_no_hang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acked := newAckCount(3)
		acked.add(2)
		require.ErrorContains(t, acked.wait(t.Context()), "2 of 3 messages")
		acked.add(1)
		require.NoError(t, acked.wait(t.Context()))
	})
}
