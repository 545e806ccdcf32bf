package contracts_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/contracts"
)

// OrderPlacedV1 to OrderPlaced are three versions of one contract.
type OrderPlacedV1 struct {
	ID    string  `json:"id"`
	Total float64 `json:"total"`
}

type OrderPlacedV2 struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

type OrderPlaced struct {
	ID       string    `json:"id"`
	Cents    int       `json:"cents"`
	Currency string    `json:"currency"`
	At       time.Time `json:"-"`
}

var errNegative = errors.New("cents are negative")

// Validate has a value, and a pointer to it, checked.
func (o OrderPlaced) Validate() error {
	if o.Cents < 0 {
		return errNegative
	}
	return nil
}

func (o OrderPlaced) OccurredAt() time.Time { return o.At }

func (OrderPlaced) IntegrationEvent() {}

type OrderCancelled struct {
	ID string `json:"id"`
}

// Page is generic: each instantiation is a type of its own.
type Page[T any] struct {
	Items []T `json:"items"`
}

// Code has its methods on the pointer.
type Code struct{ text string }

func (c *Code) MarshalText() ([]byte, error) { return []byte("code-" + c.text), nil }

func (c *Code) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "code-%s", &c.text)
	return err
}

// Coupon is checked by a method on the pointer.
type Coupon struct {
	Code Code `json:"code"`
}

func (c *Coupon) Validate() error {
	if c.Code.text == "" {
		return errors.New("the code is empty")
	}
	return nil
}

func fromV1(old OrderPlacedV1) (*OrderPlacedV2, error) {
	return &OrderPlacedV2{ID: old.ID, Cents: int(old.Total*100 + 0.5)}, nil
}

func fromV2(old *OrderPlacedV2) (OrderPlaced, error) {
	return OrderPlaced{ID: old.ID, Cents: old.Cents, Currency: "EUR"}, nil
}

const orderPlaced = "orders.order-placed"

func orderPlacedContract() contracts.Contract {
	return contracts.Of[OrderPlaced](orderPlaced, 3, contracts.UpcastFrom(2, fromV2), contracts.UpcastFrom(1, fromV1))
}

func newRegistry(tb testing.TB, registered ...contracts.Contract) *contracts.Registry {
	tb.Helper()
	registry, err := contracts.NewRegistry(registered...)
	require.NoError(tb, err)
	return registry
}

// shop is a registry of all types above.
func shop(tb testing.TB) *contracts.Registry {
	tb.Helper()
	return newRegistry(tb,
		orderPlacedContract(),
		contracts.Of[*OrderCancelled]("orders.order-cancelled", 1, contracts.FromWatermill("orders.OrderCancelled", 1)),
		contracts.Of[Page[OrderPlaced]]("orders.page", 1),
		contracts.Of[Page[Coupon]]("coupons.page", 1),
		contracts.Of[Coupon]("coupons.coupon", 1),
		contracts.Of[map[string]int]("counts", 1),
	)
}
