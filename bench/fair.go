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
	"github.com/outmill/outmill/storekit"
)

const fairAbout = `Fair topics of SQLite beside the same topic without fairness: appends of 1,000, and claim + ack of -batch records, of
512 tenants that have all 64 parts. Then one tenant appends n records, and another one ten, whose part differs. The commits wait for the disk.

  plain_append_per_s     appends without fairness
  fair_append_per_s      appends to a fair topic
  plain_claim_ack_per_s  claims and acks without fairness
  fair_claim_ack_per_s   claims and acks of 64 busy parts
  claim_ack_ratio        fair_claim_ack / plain_claim_ack
  append_ratio           fair_append / plain_append
  claims_beside          claims of 100 until the ten records have come`

func init() {
	scenarios = append(scenarios, scenario{
		name: "fair", help: "claim + ack of a fair topic of SQLite with 64 busy parts, and a small tenant beside a big one",
		about: fairAbout, n: 50_000, short: 2_000, measure: measureFair,
	})
}

// fairing is one store after the other.
type fairing struct {
	storing
	fair []string
}

func measureFair(ctx context.Context, b *bench) (err error) {
	dir, err := os.MkdirTemp("", "outmill-bench-fair-")
	if err != nil {
		return err
	}
	f := &fairing{storing: storing{b: b, owner: outmill.NewOwnerToken()}}
	defer func() { err = errors.Join(err, f.close(), os.RemoveAll(dir)) }()
	number := 0
	f.open = func(ctx context.Context) (outmill.Store, error) {
		number++
		store, err := sqlite.Open(ctx, filepath.Join(dir, fmt.Sprintf("outbox-%d.db", number)), sqlite.Config{FairTopics: f.fair}, nil)
		if err != nil {
			return nil, err
		}
		return store, errors.Join(store.Ensure(ctx), store.RegisterGroup(ctx, outmill.Registration{}))
	}
	err = b.compare(ctx,
		side{field: "plain_append_per_s", title: "not fair, append 1,000", n: b.n, prepare: f.prepare(0), run: f.appendAll},
		side{field: "fair_append_per_s", title: "fair, append 1,000", n: b.n, prepare: f.prepare(0, storesTopic), run: f.appendAll},
		side{field: "plain_claim_ack_per_s", title: "not fair, claim and ack", n: b.n, prepare: f.prepare(b.n), run: f.settle(b.n, b.batch)},
		side{field: "fair_claim_ack_per_s", title: "64 busy parts, claim and ack", n: b.n, prepare: f.prepare(b.n, storesTopic),
			run: f.settle(b.n, b.batch)},
	)
	if err != nil {
		return err
	}
	b.results.pairs("append_ratio", "append, fair / not fair", "fair_append_per_s", "plain_append_per_s")
	b.results.pairs("claim_ack_ratio", "claim and ack, fair / not fair", "fair_claim_ack_per_s", "plain_claim_ack_per_s")
	claims, err := f.beside(ctx)
	b.results.add("claims_beside", "claims until ten of a small tenant came", float64(claims))
	return err
}

// prepare makes an empty store with these fair topics, and appends this number of records.
func (f *fairing) prepare(waiting int, fair ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		f.fair = fair
		if err := f.storing.prepare(0)(ctx); err != nil || waiting == 0 {
			return err
		}
		_, err := f.appendAll(ctx)
		return err
	}
}

func (f *fairing) appendAll(ctx context.Context) (time.Duration, error) {
	return f.appendOf(ctx, f.b.n, func(i int) string { return fmt.Sprint("tenant-", i%512) })
}

func (f *fairing) appendOf(ctx context.Context, n int, tenant func(i int) string) (spent time.Duration, err error) {
	for from := 0; from < n && err == nil; from += appendAtOnce {
		list := records(storesTopic, from, min(appendAtOnce, n-from), f.b.size, true)
		for i, r := range list {
			r.TenantID = tenant(from + i)
		}
		began := time.Now()
		err = f.store.Append(ctx, list...)
		spent += time.Since(began)
	}
	return spent, err
}

// beside returns how many claims of 100 it takes until the ten records of a small tenant have come.
func (f *fairing) beside(ctx context.Context) (claims int, err error) {
	small := 0
	for i := 1; small == 0; i++ {
		if storekit.PartOf(storesTopic, fmt.Sprint(i)) != storekit.PartOf(storesTopic, "0") {
			small = i
		}
	}
	if err := f.prepare(0, storesTopic)(ctx); err != nil {
		return 0, err
	}
	of := func(tenant int) func(int) string { return func(int) string { return fmt.Sprint(tenant) } }
	if _, err := f.appendOf(ctx, f.b.n, of(0)); err != nil {
		return 0, err
	}
	if _, err := f.appendOf(ctx, 10, of(small)); err != nil {
		return 0, err
	}
	for left := 10; left > 0; claims++ {
		found, err := f.store.Claim(ctx, outmill.ClaimRequest{Owner: f.owner, Limit: 100, Lease: time.Minute})
		if err != nil || len(found) == 0 {
			return claims, errors.Join(err, fmt.Errorf("%d records of the small tenant are left", left))
		}
		for _, r := range found {
			if r.TenantID == fmt.Sprint(small) {
				left--
			}
		}
	}
	return claims, nil
}
