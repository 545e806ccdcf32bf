package outmill_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

// Dead records are requeued by the error that they failed with, however many there are.
func Example_requeueWhere() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outmill")
	must(err)
	defer func() { must(os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "shop.db"), sqlite.Config{}, nil)
	must(err)
	defer func() { must(store.Close()) }()
	must(store.Ensure(ctx))
	must(store.RegisterGroup(ctx, outmill.Registration{}))
	must(store.Append(ctx, &outmill.Record{Topic: "orders", MessageID: "m1"}, &outmill.Record{Topic: "orders", MessageID: "m2"}))
	leased, err := store.Claim(ctx, outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 2, Lease: time.Minute})
	must(err)
	must(store.Fail(ctx, []outmill.Settlement{
		{Lease: leased[0].Lease(), Err: "connection refused"}, {Lease: leased[1].Lease(), Err: "no such order"},
	}))

	operator, _ := outmill.As[roles.Repairs](store)
	query := outmill.ListQuery{Topic: "orders", ErrorText: "refused"}
	for page := (roles.Page{}); !page.Done; query.After = page.Next {
		page, err = operator.RequeueWhere(ctx, query)
		must(err)
		fmt.Println("requeued:", page.Changed)
	}
	left, err := operator.Find(ctx, outmill.ListQuery{Status: outmill.StatusDead})
	must(err)
	fmt.Println("dead:", left.Records[0].MessageID, left.Records[0].LastError)
	// Output:
	// requeued: 1
	// dead: m2 no such order
}
