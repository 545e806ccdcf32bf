package cloudevents_test

import (
	"fmt"
	"time"

	"github.com/outmill/outmill/contracts"
	"github.com/outmill/outmill/contracts/cloudevents"
)

// Shipped is an event for other services.
type Shipped struct {
	Order string `json:"order"`
}

func Example() {
	registry, err := contracts.NewRegistry(contracts.Of[Shipped]("com.example.shipped", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	marshaler, err := cloudevents.New(registry, cloudevents.Config{
		Source: "https://shop.example.com/orders",
		Now:    func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) },
		Attributes: func(event any) map[string]string {
			if shipped, ok := event.(Shipped); ok {
				return map[string]string{"subject": shipped.Order}
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	msg, err := marshaler.Marshal(Shipped{Order: "o-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"ce_specversion", "ce_type", "ce_contractversion", "ce_source", "ce_subject", "ce_time", "content-type"} {
		fmt.Println(name, msg.Metadata[name])
	}
	fmt.Println(string(msg.Payload))
	// Output:
	// ce_specversion 1.0
	// ce_type com.example.shipped
	// ce_contractversion 1
	// ce_source https://shop.example.com/orders
	// ce_subject o-7
	// ce_time 2026-03-04T05:06:07Z
	// content-type application/json
	// {"order":"o-7"}
}
