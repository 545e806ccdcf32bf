package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/tenants"
)

const tenantsAbout = `One tenant has n messages waiting, and 49 tenants have 10 each. A tenants.Set with its default strategy claims -batch
records at a time, and acks these, until all are acked. A single store with as many messages is drained in the same way. All
are SQLite files in the machine's temporary directory.

  sqlite_single_per_s   claims and acks of the single store
  sqlite_tenants_per_s  claims and acks of the set
  sqlite_small_done_s   seconds until the last message of the 49 was acked; the goal is at most 1
  sqlite_ratio          sqlite_tenants / sqlite_single; the goal is at least 0.8`

const (
	smallTenants = 49
	fewWaiting   = 10
	largeTenant  = "large"
)

func init() {
	scenarios = append(scenarios, scenario{
		name: "tenants", help: "one large tenant and 49 small ones, compared with a single store",
		about: tenantsAbout, n: 100_000, short: 2_000, measure: measureTenants,
	})
}

func measureTenants(ctx context.Context, b *bench) (err error) {
	open, err := sqliteOpener(ctx, b)
	if err != nil {
		return err
	}
	all := b.n + smallTenants*fewWaiting
	single := &storing{b: b, open: open, owner: outmill.NewOwnerToken()}
	many := &tenanting{b: b, owner: outmill.NewOwnerToken()}
	defer func() { err = errors.Join(err, single.close(), many.close()) }()
	err = b.compare(ctx,
		side{field: "sqlite_single_per_s", title: "SQLite, a single store", n: all, prepare: single.prepare(all),
			run: single.settle(all, b.batch)},
		side{field: "sqlite_tenants_per_s", title: "SQLite, 50 tenants", n: all, prepare: many.prepare, run: many.run},
	)
	if err != nil {
		return err
	}
	for _, done := range many.smallDone {
		b.results.add("sqlite_small_done_s", "seconds until the 49 are done", done.Seconds())
	}
	b.results.ratio("sqlite_ratio", "50 tenants / single store", "sqlite_tenants_per_s", "sqlite_single_per_s")
	return nil
}

// tenanting is a set of one large tenant and many small ones.
type tenanting struct {
	b      *bench
	owner  outmill.OwnerToken
	dir    string
	stores []outmill.Store
	set    *tenants.Set
	// smallDone has, for each run, the time until the small tenants had nothing left.
	smallDone []time.Duration
}

func (t *tenanting) close() (err error) {
	if t.set != nil {
		err = t.set.Close()
	}
	for _, store := range t.stores {
		err = errors.Join(err, store.Close())
	}
	if t.dir != "" {
		err = errors.Join(err, os.RemoveAll(t.dir))
	}
	t.set, t.stores, t.dir = nil, nil, ""
	return err
}

func (t *tenanting) prepare(ctx context.Context) (err error) {
	if err := t.close(); err != nil {
		return err
	}
	if t.dir, err = os.MkdirTemp("", "outmill-bench-tenants-"); err != nil {
		return err
	}
	list := make(tenants.Static, 0, smallTenants+1)
	for i := range smallTenants + 1 {
		key, waiting := fmt.Sprintf("small-%d", i), fewWaiting
		if i == 0 {
			key, waiting = largeTenant, t.b.n
		}
		store, err := sqlite.Open(ctx, filepath.Join(t.dir, key+".db"), sqlite.Config{}, nil)
		if err != nil {
			return err
		}
		t.stores = append(t.stores, store)
		if err := store.Ensure(ctx); err != nil {
			return err
		}
		if err := t.b.fill(ctx, store, "", storesTopic, waiting, true); err != nil {
			return err
		}
		list = append(list, tenants.Tenant{Key: key, Store: store})
	}
	t.set, err = tenants.New(ctx, tenants.Config{Discovery: list, Linger: -1}, nil)
	return err
}

// run claims again where a claim gives nothing, because the set may have let its members rest.
func (t *tenanting) run(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	small := smallTenants * fewWaiting
	for left := t.b.n + small; left > 0; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		claimed, err := t.set.Claim(ctx, outmill.ClaimRequest{
			Owner: t.owner, Topics: outmill.Topics{Include: []string{storesTopic}}, Limit: min(t.b.batch, left), Lease: time.Minute,
		})
		if err != nil {
			return 0, err
		}
		if len(claimed) == 0 {
			// A worker would wait for a wake-up.
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
			continue
		}
		leases, ofSmall := make([]outmill.Lease, len(claimed)), 0
		for i, r := range claimed {
			leases[i] = r.Lease()
			if r.Store != largeTenant {
				ofSmall++
			}
		}
		if err := t.set.Ack(ctx, "", leases); err != nil {
			return 0, err
		}
		left -= len(claimed)
		if small -= ofSmall; small == 0 && ofSmall > 0 {
			t.smallDone = append(t.smallDone, time.Since(began))
		}
	}
	return time.Since(began), nil
}
