package storekit_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func TestMergeSagaState(t *testing.T) {
	t.Parallel()
	type state struct {
		Paid bool
		Tags map[string]int `json:"tags,omitempty"`
	}
	merge := func(t *testing.T, stored string, next state) state {
		t.Helper()
		encoded, err := storekit.EncodeSagaState(&next, 0)
		require.NoError(t, err)
		merged, err := storekit.MergeSagaState(stored, encoded, &next, 0)
		require.NoError(t, err)
		var got state
		require.NoError(t, json.Unmarshal([]byte(merged), &got))
		return got
	}
	t.Run("does not take a field for unknown that has only other capitals", func(t *testing.T) {
		t.Parallel()
		require.True(t, merge(t, `{"paid":false}`, state{Paid: true}).Paid)
		require.False(t, merge(t, `{"paid":true}`, state{Paid: false}).Paid)
	})
	t.Run("keeps apart the keys of a map that differ in capitals", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, map[string]int{"A": 1}, merge(t, `{"Paid":true,"tags":{"a":1,"A":2}}`, state{Tags: map[string]int{"A": 1}}).Tags)
	})
}
