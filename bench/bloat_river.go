package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"
)

// riverBloat is River's side, with the settings of the burndown.
type riverBloat struct {
	*riverPeer
	b *bench
	// inserts is for commit.
	inserts *river.Client[pgx.Tx]
}

func (r *riverBloat) schema() string { return "public" }

func (r *riverBloat) reset(ctx context.Context) (err error) {
	if r.inserts, err = r.inserter(); err != nil {
		return err
	}
	return r.clear(ctx)
}

func (r *riverBloat) append(ctx context.Context, n int) error {
	for from := 0; from < n; from += appendAtOnce {
		if _, err := r.inserts.InsertManyFast(ctx, jobs(from, min(appendAtOnce, n-from), r.b.size)); err != nil {
			return err
		}
	}
	return nil
}

// drain is the same as in the burndown.
func (r *riverBloat) drain(ctx context.Context, n int) (time.Duration, error) {
	return (&riverBurning{river: r.riverPeer, b: r.b.with(n)}).run(ctx)
}

// tidy does nothing, because River keeps completed jobs.
func (r *riverBloat) tidy(context.Context) error { return nil }

// work ends when n jobs are completed.
func (r *riverBloat) work(ctx context.Context, n int) (finish func() error, err error) {
	var running errgroup.Group
	running.Go(func() error {
		_, err := r.drain(ctx, n)
		return err
	})
	return running.Wait, nil
}

func (r *riverBloat) commit(ctx context.Context, i int) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		_, err := r.inserts.InsertTx(ctx, tx, jobs(i, 1, r.b.size)[0].Args, nil)
		return err
	})
}
