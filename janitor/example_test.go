package janitor_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/janitor"
	_ "github.com/outmill/outmill/sqlite"
)

// A cron job, or a test, does one round and prints what it did.
func ExampleJanitor_RunOnce() {
	ctx := context.Background()
	store, err := outmill.Open(ctx, "sqlite::memory:", nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		panic(err)
	}
	j, err := janitor.New(store, janitor.Config{}, nil)
	if err != nil {
		panic(err)
	}
	report, err := j.RunOnce(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Processed, "processed records deleted")
	// Output: 0 processed records deleted
}

// A process that only tidies, for programs whose subscribers and forwarders have a negative
// UpkeepInterval.
func ExampleJanitor_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var store outmill.Store // of outmill.Open
	j, err := janitor.New(store, janitor.Config{
		OnRound: func(report janitor.Report, err error) {
			// Count report.Total() and err in your metrics.
		},
	}, nil)
	if err != nil {
		panic(err)
	}
	if err := j.Run(ctx); err != nil { // until SIGTERM
		panic(err)
	}
}
