package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/memstore"
)

// A test moves the clock instead of waiting for a delay to end.
func Example() {
	ctx := context.Background()
	db := memstore.NewDatabase()
	store := memstore.New(db, memstore.Options{})
	defer func() { _ = store.Close() }()

	check(store.Ensure(ctx))
	check(store.RegisterGroup(ctx, outmill.Registration{Group: "billing"}))

	tx := db.Begin()
	check(store.Append(store.WithTx(ctx, tx), &outmill.Record{Topic: "orders", Delay: time.Hour}))
	check(tx.Commit())

	request := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "billing", Limit: 10, Lease: time.Minute}
	early, err := store.Claim(ctx, request)
	check(err)
	db.Elapse(time.Hour)
	due, err := store.Claim(ctx, request)
	check(err)
	fmt.Println(len(early), len(due))
	// Output: 0 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
