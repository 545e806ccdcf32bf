package contracts_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
)

// FuzzMarshaler_Unmarshal runs the seeds as a test; go test -fuzz goes on from there.
func FuzzMarshaler_Unmarshal(f *testing.F) {
	marshaler := shop(f).Marshaler(contracts.MarshalerConfig{})
	payloads := []string{``, `null`, `{}`, `[`, `{"id":"7","total":19.99}`, `{"cents":"x"}`, "\xff", `{"items":[{"code":"code-1"}]}`}
	for _, payload := range payloads {
		for _, version := range []string{"", "1", "2", "3", "4", "x"} {
			f.Add(orderPlaced, version, []byte(payload))
			f.Add("coupons.page", version, []byte(payload))
		}
	}
	f.Add("", "", []byte(nil))
	f.Fuzz(func(t *testing.T, name, version string, payload []byte) {
		msg := arrive(name, version, string(payload))
		require.Equal(t, name, marshaler.NameFromMessage(msg))
		for _, target := range []any{&OrderPlaced{}, &Page[Coupon]{}, &map[string]int{}} {
			err := marshaler.Unmarshal(msg, target)
			if err == nil {
				continue
			}
			require.True(t, outmill.IsPermanent(err), err)
			require.True(t, utf8.ValidString(err.Error()), err)
			require.Less(t, len(err.Error()), 1000)
		}
	})
}

func TestFuzz(t *testing.T) {
	t.Parallel()

	t.Run("what is published in any version is read as the current one", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			id, cents := rapid.String().Draw(t, "id"), rapid.IntRange(0, 1_000_000).Draw(t, "cents")
			versions := []struct {
				contract contracts.Contract
				event    any
			}{
				{contracts.Of[OrderPlacedV1](orderPlaced, 1), OrderPlacedV1{id, float64(cents) / 100}},
				{contracts.Of[OrderPlacedV2](orderPlaced, 2), &OrderPlacedV2{id, cents}},
				{contracts.Of[OrderPlaced](orderPlaced, 3), OrderPlaced{ID: id, Cents: cents, Currency: "EUR"}},
			}
			version := rapid.SampledFrom(versions).Draw(t, "version")
			older, err := contracts.NewRegistry(version.contract)
			require.NoError(t, err)
			msg, err := older.Marshaler(contracts.MarshalerConfig{}).Marshal(version.event)
			require.NoError(t, err)
			current, err := contracts.NewRegistry(orderPlacedContract())
			require.NoError(t, err)
			var got OrderPlaced
			require.NoError(t, current.Marshaler(contracts.MarshalerConfig{}).Unmarshal(msg, &got))
			require.Equal(t, OrderPlaced{ID: id, Cents: cents, Currency: "EUR"}, got)
		})
	})
}
