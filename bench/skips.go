package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

const skipsAbout = `Claims by key of PostgreSQL (fsync on) from a topic where an operator has taken many rows out of the log, next to claims from
one where nobody has. n rows wait and are deleted by a filter, or a tenth of n wait with one key, that is paused, so that claims move them to the
records. Behind these wait as many rows as 40 claims of -batch take, which have other keys. The clock runs during the claims alone, and not
during their acks. No upkeep comes between.

  plain_claims_per_s      claims where nothing was taken out
  deleted_claims_per_s    claims behind n deleted rows
  paused_claims_per_s     claims behind the rows of the paused key
  plain_claim_ms          median of these claims
  deleted_claim_ms        "
  paused_claim_ms         "
  plain_first_ms          the first of these claims
  deleted_first_ms        the same, which goes over what was taken out
  paused_first_ms         "
  delete_per_s            rows that the filter deleted per second
  deleted_cost            median of the claims behind deleted rows / of those where nothing was taken out
  paused_cost             the same behind the rows of the paused key`

func init() {
	scenarios = append(scenarios, scenario{
		name: "skips", help: "claims behind many rows that an operator has deleted or paused",
		about: skipsAbout, n: 1_000_000, short: 2_000, measure: measureSkips,
	})
}

const (
	skipsTopic = "orders"
	// skipsClaims is the number of claims that a round measures.
	skipsClaims = 40
	// pausedShare is the part of n that has the paused key.
	pausedShare = 10
	pausedKey   = "customer-paused"
)

// skipping is one store after the other.
type skipping struct {
	b     *bench
	pool  *pgxpool.Pool
	store *postgres.Store
	owner outmill.OwnerToken
}

func measureSkips(ctx context.Context, b *bench) (err error) {
	pool, err := b.database(ctx, "skips")
	if err != nil {
		return err
	}
	s := &skipping{b: b, pool: pool, owner: outmill.NewOwnerToken()}
	defer func() { err = errors.Join(err, s.close()) }()
	of := func(name, title string, takeOut func(ctx context.Context) error) side {
		return side{
			field: name + "_claims_per_s", title: title, n: skipsClaims,
			prepare: func(ctx context.Context) error { return s.prepare(ctx, takeOut) },
			run: func(ctx context.Context) (time.Duration, error) {
				return s.claims(ctx, name, title)
			},
		}
	}
	err = b.compare(ctx,
		of("plain", "claims, nothing taken out", func(context.Context) error { return nil }),
		of("deleted", fmt.Sprintf("claims behind %d deleted", b.n), s.deleteAll),
		of("paused", fmt.Sprintf("claims behind %d of a paused key", b.n/pausedShare), s.pause),
	)
	if err != nil {
		return err
	}
	b.results.ratio("deleted_cost", "behind deleted / nothing taken out", "deleted_claim_ms", "plain_claim_ms")
	b.results.ratio("paused_cost", "behind paused / nothing taken out", "paused_claim_ms", "plain_claim_ms")
	return nil
}

func (s *skipping) close() error {
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// prepare makes a store, has takeOut append rows and take them out, and appends those that the claims get.
func (s *skipping) prepare(ctx context.Context, takeOut func(ctx context.Context) error) (err error) {
	if err := s.close(); err != nil {
		return err
	}
	if s.store, err = outbox(ctx, s.pool); err != nil {
		return err
	}
	// Each side begins with claims of the plain kind, so that the connections have their plans.
	if err := s.b.fill(ctx, s.store, "", skipsTopic, skipsClaims*s.b.batch, true); err != nil {
		return err
	}
	if _, err := s.claimAll(ctx); err != nil {
		return err
	}
	if err := takeOut(ctx); err != nil {
		return err
	}
	if err := s.b.fill(ctx, s.store, "", skipsTopic, skipsClaims*s.b.batch, true); err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, "CHECKPOINT")
	return err
}

func (s *skipping) deleteAll(ctx context.Context) error {
	if err := s.b.fill(ctx, s.store, "", skipsTopic, s.b.n, true); err != nil {
		return err
	}
	query, began := outmill.ListQuery{Topic: skipsTopic, Status: outmill.StatusPending, Limit: 10_000}, time.Now()
	for deleted := 0; ; {
		page, err := s.store.DeleteWhere(ctx, query)
		if err != nil {
			return err
		}
		deleted += page.Changed
		if query.After = page.Next; !page.Done {
			continue
		}
		if deleted != s.b.n {
			return fmt.Errorf("deleted %d of %d", deleted, s.b.n)
		}
		s.b.results.add("delete_per_s", "deleted by a filter, per second", float64(deleted)/time.Since(began).Seconds())
		return nil
	}
}

func (s *skipping) pause(ctx context.Context) error {
	n := s.b.n / pausedShare
	for from := 0; from < n; from += appendAtOnce {
		list := records(skipsTopic, from, min(appendAtOnce, n-from), s.b.size, false)
		for _, r := range list {
			r.Key = pausedKey
		}
		if err := s.store.Append(ctx, list...); err != nil {
			return err
		}
	}
	if err := s.store.Pause(ctx, roles.PauseScope{Topic: skipsTopic, Key: pausedKey}, "bench", ""); err != nil {
		return err
	}
	// Each claim moves what its page shows.
	for moved := false; !moved; {
		found, err := s.claim(ctx)
		if err == nil && len(found) > 0 {
			err = errors.New("a claim returned a record of the paused key")
		}
		if err == nil {
			err = s.pool.QueryRow(ctx, "SELECT count(*) >= $1 FROM outmill.records WHERE key = $2", n, pausedKey).Scan(&moved)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *skipping) claim(ctx context.Context) ([]*outmill.Record, error) {
	return s.store.Claim(ctx, outmill.ClaimRequest{
		Owner: s.owner, Topics: outmill.Topics{Include: []string{skipsTopic}}, Limit: s.b.batch, Lease: time.Minute, Order: outmill.OrderKey,
	})
}

// claims returns the time of the claims, and adds that of the first one and the median to the results.
func (s *skipping) claims(ctx context.Context, name, title string) (all time.Duration, err error) {
	spent, err := s.claimAll(ctx)
	if err != nil {
		return 0, err
	}
	s.b.results.add(name+"_first_ms", title+": the first, ms", millis(spent[0]))
	slices.Sort(spent)
	s.b.results.add(name+"_claim_ms", title+": median, ms", millis(spent[len(spent)/2]))
	for _, took := range spent {
		all += took
	}
	return all, nil
}

// claimAll claims and acks what waits behind that which was taken out, and returns the time of each claim.
func (s *skipping) claimAll(ctx context.Context) (spent []time.Duration, err error) {
	for left := skipsClaims * s.b.batch; left > 0; {
		began := time.Now()
		found, err := s.claim(ctx)
		spent = append(spent, time.Since(began))
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("nothing to claim, and %d are left", left)
		}
		if err != nil {
			return nil, err
		}
		leases := make([]outmill.Lease, len(found))
		for i, r := range found {
			leases[i] = r.Lease()
		}
		if err := s.store.Ack(ctx, "", leases); err != nil {
			return nil, err
		}
		left -= len(found)
	}
	return spent, nil
}
