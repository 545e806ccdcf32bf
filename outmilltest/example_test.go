package outmilltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

// PlaceOrder is the program under test: it announces an order, and a reminder
// for a day later, in one transaction.
func PlaceOrder(ctx context.Context, store *sqlite.Store, id string) error {
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return err
	}
	return store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		placed := message.NewMessage("placed "+id, message.Payload(`{"order": "`+id+`"}`))
		outmill.SetKey(placed, id)
		if err := pub.WithContext(ctx).Publish("orders", placed); err != nil {
			return err
		}
		reminder := message.NewMessage("reminder "+id, message.Payload(`{"order": "`+id+`"}`))
		outmill.SetDelay(reminder, 24*time.Hour)
		return pub.WithContext(ctx).Publish("reminders", reminder)
	})
}

func ExampleRequirePublished() {
	asTest(func(t testing.TB) { // in your test: func TestPlaceOrder(t *testing.T) {
		store := outmilltest.NewStore(t)
		if err := PlaceOrder(t.Context(), store, "o1"); err != nil {
			t.Fatal(err)
		}

		placed := outmilltest.RequirePublished(t, store, "orders",
			outmilltest.Key("o1"),
			outmilltest.PayloadJSON(map[string]string{"order": "o1"}),
			outmilltest.DueAtOnce())
		fmt.Println(placed.MessageID)

		outmilltest.RequirePublished(t, store, "reminders", outmilltest.DueIn(24*time.Hour, time.Second))
	})
	// Output:
	// placed o1
}

// A failure shows what was published instead.
func ExampleRequirePublished_failure() {
	asTest(func(t testing.TB) {
		store := outmilltest.NewStore(t)
		if err := PlaceOrder(t.Context(), store, "o1"); err != nil {
			t.Fatal(err)
		}
		outmilltest.RequirePublished(t, store, "orders", outmilltest.Key("o2"))
	})
	// Output:
	// FAIL: outmilltest: want exactly one such message in topic "orders", got 0; published were:
	// 	1. message "placed o1", pending, outmill_key="o1", payload {"order": "o1"}
	// 	   does not match: key is "o1", want "o2"
}

func ExampleRequireManyPublished() {
	asTest(func(t testing.TB) {
		store := outmilltest.NewStore(t)
		for _, id := range []string{"o1", "o2", "o3"} {
			if err := PlaceOrder(t.Context(), store, id); err != nil {
				t.Fatal(err)
			}
		}

		for _, rec := range outmilltest.RequireManyPublished(t, store, "orders",
			outmilltest.All(outmilltest.Key("o1"), outmilltest.DueAtOnce()),
			outmilltest.Key("o2"),
			outmilltest.Any()) {
			fmt.Println(rec.MessageID)
		}
	})
	// Output:
	// placed o1
	// placed o2
	// placed o3
}

func ExampleRequireNotPublished() {
	asTest(func(t testing.TB) {
		store := outmilltest.NewStore(t)
		if err := PlaceOrder(t.Context(), store, "o1"); err != nil {
			t.Fatal(err)
		}

		outmilltest.RequireNotPublished(t, store, "invoices")
		outmilltest.RequireNotPublished(t, store, "orders", outmilltest.Key("o2"))
		fmt.Println("neither was published")
	})
	// Output:
	// neither was published
}

// asTest runs a test of a user's program, and prints its failure.
func asTest(test func(t testing.TB)) {
	t := &printer{ctx: context.Background()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.end()
		test(t)
	}()
	<-done
}

// printer has the methods of testing.TB that the examples need.
type printer struct {
	testing.TB
	ctx      context.Context
	cleanups []func()
}

func (p *printer) Helper()                  {}
func (p *printer) Context() context.Context { return p.ctx }
func (p *printer) Cleanup(f func())         { p.cleanups = append(p.cleanups, f) }

func (p *printer) Errorf(format string, args ...any) {
	fmt.Printf("FAIL: "+format+"\n", args...)
}

func (p *printer) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

func (p *printer) Fatal(args ...any) { p.Fatalf("%s", fmt.Sprint(args...)) }

func (p *printer) TempDir() string {
	dir, err := os.MkdirTemp("", "outmill")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *printer) end() {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
}
