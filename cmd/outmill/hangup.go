package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/tenants"
)

// refreshOnHangup asks the discovery of the set at once with each SIGHUP, until stop is called. Without a set it leaves
// the signal alone.
func refreshOnHangup(ctx context.Context, set *tenants.Set, logger watermill.LoggerAdapter) (stop func()) {
	if set == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			err := set.Refresh(ctx)
			fields := watermill.LogFields{"tenants": set.Status().Discovery.Tenants}
			switch {
			case ctx.Err() != nil:
			case err != nil:
				logger.Error("SIGHUP: the tenants were asked for, and not all are ready", err, fields)
			default:
				logger.Info("SIGHUP: the tenants were asked for", fields)
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		cancel()
		running.Wait()
	}
}
