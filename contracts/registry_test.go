package contracts_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
)

func TestNewRegistry(t *testing.T) {
	t.Parallel()
	t.Run("refuses a contract that cannot work, and says why", func(t *testing.T) {
		t.Parallel()
		of := contracts.Of[OrderPlaced]
		fromAny := func(any) (o OrderPlaced, err error) { return o, nil }
		same := func(old OrderPlaced) (OrderPlaced, error) { return old, nil }
		for want, c := range map[string]contracts.Contract{
			"make it with contracts.Of":                             {},
			"is empty: want 1 to 255":                               of("", 1),
			"at most 255":                                           of(strings.Repeat("ä", 256), 1),
			"not valid UTF-8":                                       of("\xff", 1),
			"a blank: trim it":                                      of("a ", 1),
			"a control character":                                   of("a\nb", 1),
			"version 0: want 1":                                     of("a", 0),
			"version 2147483648: want 1":                            of("a", contracts.MaxVersion+1),
			"the type is interface {}":                              contracts.Of[any]("a", 1),
			"the type is *int":                                      contracts.Of[**int]("a", 1),
			"the type is func()":                                    contracts.Of[func()]("a", 1),
			"an option is nil":                                      of("a", 1, nil),
			"the codec of EncodedBy":                                of("a", 1, contracts.EncodedBy(nil)),
			"the codec of UpcastFrom(1":                             of("a", 2, contracts.UpcastFrom(1, same, contracts.EncodedBy(nil))),
			"the function of UpcastFrom(1":                          of("a", 2, contracts.UpcastFrom[OrderPlaced, OrderPlaced](1, nil)),
			"UpcastFrom(2, …): want a version from 1 to below":      of("a", 2, contracts.UpcastFrom(2, same)),
			"UpcastFrom(0, …): want a version":                      of("a", 2, contracts.UpcastFrom(0, same)),
			"is there twice":                                        of("a", 2, contracts.UpcastFrom(1, same), contracts.UpcastFrom(1, same)),
			"but the contract is of contracts_test.OrderPlaced":     of("a", 2, contracts.UpcastFrom(1, fromV1)),
			"but UpcastFrom(2, …) takes contracts_test.OrderPlaced": of("a", 3, contracts.UpcastFrom(1, fromV1), contracts.UpcastFrom(2, same)),
			"the argument of UpcastFrom is interface":               of("a", 2, contracts.UpcastFrom(1, fromAny)),
			"the name of FromWatermill is empty":                    of("a", 1, contracts.FromWatermill("", 1)),
			`FromWatermill("old", 2): want a version`:               of("a", 1, contracts.FromWatermill("old", 2)),
		} {
			registry, err := contracts.NewRegistry(c)
			require.Nil(t, registry, want)
			require.ErrorIs(t, err, contracts.ErrInvalidContract, want)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, want)
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("refuses duplicates, and reports all of them", func(t *testing.T) {
		t.Parallel()
		_, err := contracts.NewRegistry(
			contracts.Of[OrderPlaced]("orders.order-placed", 1, contracts.FromWatermill("old", 1)),
			contracts.Of[*OrderPlaced]("orders.other", 1),
			contracts.Of[OrderCancelled]("orders.order-placed", 2),
			contracts.Of[Coupon]("coupon", 1, contracts.FromWatermill("old", 1)),
		)
		require.ErrorIs(t, err, contracts.ErrDuplicateContract)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, `type contracts_test.OrderPlaced is registered as "orders.order-placed" and "orders.other"`)
		require.ErrorContains(t, err, `types contracts_test.OrderPlaced and contracts_test.OrderCancelled have this name`)
		require.ErrorContains(t, err, `FromWatermill("old", …) is an option of "orders.order-placed" and "coupon"`)
	})
	t.Run("takes names of 255 characters, and the highest version", func(t *testing.T) {
		t.Parallel()
		newRegistry(t, contracts.Of[OrderPlaced](strings.Repeat("ä", 255), contracts.MaxVersion))
	})
	t.Run("tells instantiations of a generic type apart", func(t *testing.T) {
		t.Parallel()
		registry := shop(t)
		for want, value := range map[string]any{"orders.page": Page[OrderPlaced]{}, "coupons.page": (*Page[Coupon])(nil)} {
			c, err := registry.ContractOf(value)
			require.NoError(t, err)
			require.Equal(t, want, c.Name())
		}
		_, err := registry.ContractOf(Page[int]{})
		require.ErrorIs(t, err, contracts.ErrUnknownContract)
		require.ErrorContains(t, err, "give contracts.Of[contracts_test.Page[int]] to contracts.NewRegistry")
	})
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	registry := shop(t)
	t.Run("lists its contracts by name", func(t *testing.T) {
		t.Parallel()
		var listed []string
		for _, c := range registry.Contracts() {
			listed = append(listed, fmt.Sprint(c.Name(), " ", c.Version(), " ", c.Versions(), " ", c.Type(), " ", c.ContentType()))
		}
		require.Len(t, listed, 6)
		require.Equal(t, "counts 1 [1] map[string]int application/json", listed[0])
		require.Equal(t, "orders.order-placed 3 [1 2 3] contracts_test.OrderPlaced application/json", listed[4])
	})
	t.Run("knows the contract of a value, of a pointer and of nil pointers", func(t *testing.T) {
		t.Parallel()
		for _, value := range []any{OrderPlaced{}, &OrderPlaced{}, (*OrderPlaced)(nil)} {
			c, err := registry.ContractOf(value)
			require.NoError(t, err)
			require.Equal(t, orderPlaced, c.Name())
			require.Equal(t, reflect.TypeFor[OrderPlaced](), c.Type())
		}
		for _, value := range []any{nil, 7, OrderPlacedV1{}, new(*OrderPlaced)} {
			_, err := registry.ContractOf(value)
			require.ErrorIs(t, err, contracts.ErrUnknownContract)
		}
	})
	t.Run("checks names and versions", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, registry.Check(orderPlaced, 1))
		require.NoError(t, registry.Check(orderPlaced, 3))
		var unknown *contracts.UnknownContractError
		err := registry.Check(orderPlaced, 4)
		require.True(t, errors.As(err, &unknown))
		require.Equal(t, orderPlaced, unknown.Name)
		require.Equal(t, 4, unknown.Version)
		require.True(t, outmill.IsPermanent(err))
		require.EqualError(t, err, `contracts: unknown contract: "orders.order-placed" has no version 4 in this program, which knows 1, 2, 3: `+
			`deploy the readers of a new version before its publishers`)
		require.ErrorIs(t, registry.Check("orders.other", 1), contracts.ErrUnknownContract)
	})
}
