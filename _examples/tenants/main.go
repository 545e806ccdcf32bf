// Command tenants is an order service with a database for each tenant. A catalogue names the
// tenants; one more comes while the service runs. One publisher, one subscriber and one router
// handler serve them all.
//
// It runs on SQLite in temporary files, so it needs Go only:
//
//	go run ./tenants
//
// The last line counts messages; the exit code is 1 if one was lost, or was seen under another
// tenant than its own, or although its order was rolled back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const ordersPerTenant = 100

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "outmill-tenants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	catalogue, err := openCatalogue(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, catalogue.close()) }()
	for _, tenant := range []string{"ada", "bob"} {
		if err := catalogue.add(ctx, tenant); err != nil {
			return err
		}
	}
	shop, err := openShop(ctx, catalogue)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.close()) }()
	return serve(ctx, catalogue, shop, out)
}

func serve(ctx context.Context, catalogue *catalogue, shop *shop, out io.Writer) error {
	fmt.Fprintf(out, "The catalogue names %v\n", shop.set.Keys())
	place := func(from, to int, tenants ...string) error {
		for order := from; order < to; order++ {
			for _, tenant := range tenants {
				if err := shop.placeOrder(ctx, tenant, order); err != nil {
					return fmt.Errorf("order %d of %s: %w", order, tenant, err)
				}
			}
		}
		return nil
	}
	if err := place(0, ordersPerTenant/2, "ada", "bob"); err != nil {
		return err
	}
	err := shop.placeOrder(ctx, "cyd", 0)
	fmt.Fprintf(out, "Too early: %v\n", err)
	if err == nil {
		return errors.New("an order of an unknown tenant was placed")
	}
	if err := catalogue.add(ctx, "cyd"); err != nil {
		return err
	}
	// A service waits for Config.Refresh instead, 5 min by default.
	if err := shop.set.Refresh(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "The catalogue names %v\n", shop.set.Keys())
	if err := place(ordersPerTenant/2, ordersPerTenant, "ada", "bob"); err != nil {
		return err
	}
	if err := place(0, ordersPerTenant, "cyd"); err != nil {
		return err
	}
	if err := shop.audit.wait(ctx, 30*time.Second); err != nil {
		return err
	}
	sum := shop.audit.summary()
	fmt.Fprintf(out, "tenants=%d %s\n", len(shop.set.Keys()), sum)
	if !sum.ok() {
		return errors.New("messages were lost, or seen where they do not belong")
	}
	return nil
}
