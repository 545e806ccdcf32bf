package outmill_test

import (
	"context"
	"fmt"

	"github.com/outmill/outmill"
	// The import makes outmill.Open and connect.Resolve know the store.

	_ "github.com/outmill/outmill/sqlite"
)

func ExampleOpen() {
	ctx := context.Background()
	store, err := outmill.Open(ctx, "sqlite::memory:", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Append(ctx, &outmill.Record{Topic: "orders", Payload: []byte(`{"order":17}`)}); err != nil {
		fmt.Println(err)
		return
	}
	records, err := store.List(ctx, outmill.ListQuery{Topic: "orders", Content: true})
	for _, rec := range records {
		fmt.Println(rec.Status, string(rec.Payload))
	}
	fmt.Println(err)
	// Output:
	// pending {"order":17}
	// <nil>
}
