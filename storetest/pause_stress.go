package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// pausesAndClaims has four workers, one process each, that claim by key while pauses come and go.
// Each worker checks that no claim that began after a pause returned what was paused.
func pausesAndClaims(e *env) {
	e.pauses()
	e.Register(group)
	var names []string
	var records []*outmill.Record
	n := 200
	if !suite.All() {
		n = 60
		e.T.Logf("skipped: the pauses beside 140 more records; %s=1 has them run", suite.EnvAll)
	}
	for i := range n {
		key := fmt.Sprint("k", i%5)
		records = append(records, suite.Rec(orders, fmt.Sprint(key, "-", i), withKeyAndTenant(key, fmt.Sprint("t", i%3))))
		names = append(names, records[i].MessageID)
	}
	e.Append(records...)
	tally := suite.NewTally()
	var paused atomic.Pointer[roles.PauseScope]
	workers, ctx := errgroup.WithContext(e.Ctx)
	for range 4 {
		store := e.Reopen()
		workers.Go(func() error {
			owner := outmill.NewOwnerToken()
			for !tally.Done(len(names)) {
				before := paused.Load()
				found, err := store.Claim(ctx, suite.Request(owner, suite.ByKey, suite.Limit(3)))
				if err != nil {
					return err
				}
				// The pause was there before the claim began, and until after it returned.
				if before != nil && paused.Load() == before {
					for _, r := range found {
						if roles.NewPauseList(1, []roles.PauseInfo{{PauseScope: *before, Number: 1}}).Covers(r) {
							return fmt.Errorf("%s was handed out under the pause of %s", r.MessageID, before)
						}
					}
				}
				for _, r := range found {
					tally.Acked(r)
				}
				if err := store.Ack(ctx, "", suite.Leases(found)); err != nil {
					return err
				}
				if len(found) == 0 {
					// A worker polls, too. Claims without a pause keep others from an engine's only
					// write lock.
					_ = storekit.Pause(ctx, 5*time.Millisecond)
				}
			}
			return nil
		})
	}
	scopes := []roles.PauseScope{
		{Topic: orders, Key: "k1"}, {TenantID: "t1"}, {Topic: orders}, {Group: group, TenantID: "t2"}, {Group: group},
	}
	for i := 0; ctx.Err() == nil && !tally.Done(len(names)); i++ {
		scope := scopes[i%len(scopes)]
		e.pause(scope)
		paused.Store(&scope)
		for range 3 {
			// Each look gives the workers time to claim.
			_, err := e.pauses().Paused(e.Ctx)
			require.NoError(e.T, err)
		}
		paused.Store(nil)
		e.resume(scope)
	}
	require.NoError(e.T, workers.Wait())
	tally.RequireOnce(e.Env, names)
	for i := range 5 {
		key := fmt.Sprint("k", i)
		var want []string
		for j := i; j < n; j += 5 {
			want = append(want, names[j])
		}
		require.Equal(e.T, want, tally.Order[key])
	}
}
