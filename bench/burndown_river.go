package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River has the settings of its own bench, `river bench` (cmd/river/riverbench/river_bench.go
// of its repository), whose comments call these numbers much better than the
// defaults: 2,000 workers, a fetch at most every 2 ms, a poll every 20 ms. Jobs
// count as done when its subscription reports them, after the completer has stored them. The
// completer has its default settings.
const (
	riverWorkers       = 2000
	riverFetchCooldown = 2 * time.Millisecond
	riverPollInterval  = 20 * time.Millisecond
)

func riverSettings() string {
	return fmt.Sprintf("MaxWorkers=%d FetchCooldown=%s FetchPollInterval=%s, as in river bench, else defaults", riverWorkers,
		riverFetchCooldown, riverPollInterval)
}

// jobArgs has the same content as the payloads of the messages.
type jobArgs struct {
	Number int    `json:"number"`
	Pad    string `json:"pad"`
}

func (jobArgs) Kind() string { return "order.placed" }

// jobs returns the same messages as jobs of River.
func jobs(from, n, size int) []river.InsertManyParams {
	list := make([]river.InsertManyParams, n)
	for i := range list {
		text := payload(from+i, size)
		// The padding is the text between the last two quotes.
		begin := len(fmt.Sprintf(`{"number":%d,"pad":"`, from+i))
		list[i].Args = jobArgs{Number: from + i, Pad: string(text[begin : len(text)-2])}
	}
	return list
}

type idleWorker struct{ river.WorkerDefaults[jobArgs] }

func (idleWorker) Work(context.Context, *river.Job[jobArgs]) error { return nil }

// riverPeer has River's tables, and a pool on them.
type riverPeer struct {
	pool   *pgxpool.Pool
	driver *riverpgxv5.Driver
}

func newRiver(ctx context.Context, pool *pgxpool.Pool) (*riverPeer, error) {
	p := &riverPeer{pool: pool, driver: riverpgxv5.New(pool)}
	migrator, err := rivermigrate.New(p.driver, &rivermigrate.Config{Logger: silent})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("make River's tables: %w", err)
	}
	return p, nil
}

var silent = slog.New(slog.DiscardHandler)

// inserter is a client that works no jobs.
func (p *riverPeer) inserter() (*river.Client[pgx.Tx], error) {
	return river.NewClient(p.driver, &river.Config{Logger: silent})
}

// clear empties the table as River's bench does.
func (p *riverPeer) clear(ctx context.Context) error {
	for _, statement := range []string{"TRUNCATE river_job", "VACUUM FULL river_job"} {
		if _, err := p.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// riverBurning is River's side of the burndown.
type riverBurning struct {
	river *riverPeer
	b     *bench
}

func (r *riverBurning) prepare(ctx context.Context) error {
	if err := r.river.clear(ctx); err != nil {
		return err
	}
	return r.river.fill(ctx, 0, r.b.n, r.b.size)
}

func (r *riverBurning) run(ctx context.Context) (time.Duration, error) {
	return r.river.work(ctx, r.b.n, riverWorkers, idleWorker{})
}

// fill inserts n jobs.
func (p *riverPeer) fill(ctx context.Context, first, n, size int) error {
	client, err := p.inserter()
	if err != nil {
		return err
	}
	for from := 0; from < n; from += appendAtOnce {
		if _, err := client.InsertManyFast(ctx, jobs(first+from, min(appendAtOnce, n-from), size)); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
	}
	return settleDown(ctx, p.pool, "river_job")
}

// work handles n jobs with this number of workers.
func (p *riverPeer) work(ctx context.Context, n, atOnce int, worker river.Worker[jobArgs]) (took time.Duration, err error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	client, err := river.NewClient(p.driver, &river.Config{
		Logger: silent, Workers: workers,
		FetchCooldown: riverFetchCooldown, FetchPollInterval: riverPollInterval,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atOnce}},
	})
	if err != nil {
		return 0, err
	}
	// River drops events if the channel is full.
	events, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled},
	})
	defer cancel()
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	defer func() {
		if stopErr := client.Stop(ctx); err == nil {
			err = stopErr
		}
	}()
	for range n {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case event := <-events:
			if event == nil || event.Kind != river.EventKindJobCompleted {
				return 0, errors.New("a job was not completed")
			}
		}
	}
	return time.Since(began), nil
}
