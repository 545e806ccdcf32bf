package janitor_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

var errBroken = errors.New("broken")

// all is what a round does with the rig's leftovers after their time.
var all = janitor.Report{
	Reaped: 1, Expired: 1, Registrations: 1, Unread: 1, Processed: 1, Joins: 1, Notes: 1, Sagas: 1, Audit: 1, DedupKeys: 1,
}

// broken is a store whose janitor's calls fail if they are named in it. The other calls are noted.
type broken struct {
	*sqlite.Store
	mu     sync.Mutex
	broken map[string]bool
	calls  []string
	batch  func(call string)
}

// AreIdle has the janitor do its chores.
func (b *broken) AreIdle(context.Context, []any) ([]bool, error) { return []bool{false}, nil }

func (b *broken) call(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, name)
	if b.batch != nil {
		b.batch(name)
	}
	if b.broken[name] {
		return errBroken
	}
	return nil
}

func (b *broken) do(ctx context.Context, name string, limit int, work func(context.Context, int) (int, error)) (int, error) {
	if err := b.call(name); err != nil {
		return 0, err
	}
	return work(ctx, limit)
}

func (b *broken) ReapExpired(ctx context.Context, limit int) (int, error) {
	return b.do(ctx, "reap", limit, b.Store.ReapExpired)
}

func (b *broken) ExpireDue(ctx context.Context, limit int) (int, error) {
	return b.do(ctx, "expire", limit, b.Store.ExpireDue)
}

func (b *broken) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	if err := b.call("registrations"); err != nil {
		return 0, 0, err
	}
	return b.Store.ExpireRegistrations(ctx, limit)
}

func (b *broken) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return b.do(ctx, "processed", limit, b.Store.DeleteProcessed)
}

func (b *broken) DeleteJoins(ctx context.Context, limit int) (int, error) {
	return b.do(ctx, "joins", limit, b.Store.DeleteJoins)
}

func (b *broken) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return b.do(ctx, "notes", limit, b.Store.DeleteNotes)
}

func (b *broken) DeleteOldSagas(ctx context.Context, limit int) (int, error) {
	return b.do(ctx, "sagas", limit, b.Store.DeleteOldSagas)
}

func (b *broken) DeleteOldAudit(ctx context.Context, limit int) (int, error) {
	return b.do(ctx, "audit", limit, b.Store.DeleteOldAudit)
}

func (b *broken) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return b.do(ctx, "dedup keys", limit, b.Store.DeleteDedupKeys)
}

// plain has the methods of a queue and none of a janitor.
type plain struct{ outmill.Queue }

// counting wraps a store and names it, so that its further roles are found.
type counting struct {
	outmill.Store
	reaped atomic.Int64
}

func (c *counting) Unwrap() outmill.Store { return c.Store }

func (c *counting) ReapExpired(ctx context.Context, limit int) (int, error) {
	c.reaped.Add(1)
	return c.Store.ReapExpired(ctx, limit)
}

func TestJanitor_RunOnce(t *testing.T) {
	t.Parallel()

	t.Run("a round does each kind of work once its time has come, and counts it", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.leftovers()
		j := newJanitor(t, r.store, janitor.Config{})
		report, err := j.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, report, "nothing is past its time")
		r.elapse(2 * kept)
		report, err = j.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, all, report)
		for _, kind := range []string{"dedup", "join", "note", "saga"} {
			require.Zero(t, r.entries(kind), kind)
		}
		left, err := r.store.List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.Len(t, left, 2)
		require.Equal(t, outmill.StatusPending, left[0].Status, "its lease has ended")
		require.Equal(t, outmill.StatusDead, left[1].Status, "it expired")
		report, err = j.RunOnce(t.Context())
		require.NoError(t, err)
		require.Zero(t, report, "all is done")
	})

	t.Run("what makes records due or dead comes first", func(t *testing.T) {
		t.Parallel()
		store := &broken{Store: newRig(t).store}
		_, err := newJanitor(t, store, janitor.Config{}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"reap", "expire", "registrations", "processed", "joins", "notes", "sagas", "audit", "dedup keys"}, store.calls)
	})

	t.Run("a long kind of work holds up none of the others", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.leftovers()
		r.elapse(2 * kept)
		r.backlog(25)
		store := &broken{Store: r.store}
		report, err := newJanitor(t, store, janitor.Config{BatchSize: 10, Share: 1}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, 26, report.Notes)
		calls := []string{"reap", "expire", "registrations", "processed", "joins", "notes", "sagas", "audit", "dedup keys", "notes", "notes"}
		require.Equal(t, calls, store.calls)
	})

	t.Run("the other kinds of work are done if one fails, and the error names that one", func(t *testing.T) {
		t.Parallel()
		for name, chore := range map[string]string{"reap": "reap ended leases", "notes": "delete notes", "registrations": "end registrations"} {
			t.Run(chore, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.leftovers()
				r.elapse(2 * kept)
				store := &broken{Store: r.store, broken: map[string]bool{name: true}}
				told := []error{}
				j := newJanitor(t, store, janitor.Config{OnRound: func(_ janitor.Report, err error) { told = append(told, err) }})
				report, err := j.RunOnce(t.Context())
				require.ErrorIs(t, err, errBroken)
				require.ErrorContains(t, err, chore+": broken")
				require.ErrorContains(t, err, "janitor of the store "+store.Name())
				require.Len(t, told, 1)
				require.ErrorIs(t, told[0], errBroken)
				want := all
				switch name {
				case "reap":
					want.Reaped = 0
				case "notes":
					want.Notes = 0
				default:
					want.Registrations, want.Unread = 0, 0
				}
				require.Equal(t, want, report)
			})
		}
	})

	t.Run("a store without the other roles has its leases reaped", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.leftovers()
		r.elapse(2 * kept)
		report, err := newJanitor(t, plain{r.store}, janitor.Config{}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, janitor.Report{Reaped: 1}, report)
	})

	t.Run("the roles of a wrapped store are found", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.leftovers()
		r.elapse(2 * kept)
		store := &counting{Store: r.store}
		report, err := newJanitor(t, store, janitor.Config{}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, all, report)
		require.EqualValues(t, 1, store.reaped.Load(), "by the wrapper")
	})

	t.Run("a round ends with its context, between two batches, and returns what it did", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.backlog(1000)
		ctx, cancel := context.WithCancel(t.Context())
		batches := 0
		store := &broken{Store: r.store, batch: func(call string) {
			if call == "notes" {
				if batches++; batches == 3 {
					cancel()
				}
			}
		}}
		j := newJanitor(t, store, janitor.Config{BatchSize: 10, Share: 0.5})
		report, err := j.RunOnce(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 20, report.Notes)
		require.Equal(t, 980, r.entries("note"))
	})

	t.Run("Close ends a round in its pause", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.backlog(1000)
		paused := make(chan struct{})
		store := &broken{Store: r.store, batch: func(call string) {
			if call == "notes" {
				close(paused)
			}
		}}
		j := newJanitor(t, store, janitor.Config{BatchSize: 10, Share: 1e-300})
		ended := make(chan error, 1)
		go func() {
			_, err := j.RunOnce(context.WithoutCancel(t.Context()))
			ended <- err
		}()
		<-paused
		require.NoError(t, j.Close())
		require.ErrorIs(t, <-ended, context.Canceled)
		require.GreaterOrEqual(t, r.entries("note"), 990, "the second batch was never begun")
	})

	t.Run("a record that expired and a registration that ended are logged with their numbers", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		log := journal.New()
		j, err := janitor.New(r.store, janitor.Config{}, log)
		require.NoError(t, err)
		_, err = j.RunOnce(t.Context())
		require.NoError(t, err)
		require.Empty(t, log.Lines(), "nothing to tell")
		r.leftovers()
		r.elapse(2 * kept)
		_, err = j.RunOnce(t.Context())
		require.NoError(t, err)
		told := log.Lines(watermill.InfoLogLevel)
		require.Len(t, told, 2)
		require.Equal(t, watermill.LogFields{"count": 1, "store": r.store.Name()}, told[0].Fields)
		require.Equal(t, watermill.LogFields{"registrations": 1, "records": 1, "store": r.store.Name()}, told[1].Fields)
		require.Len(t, log.Lines(watermill.DebugLogLevel), 1, "the counts of the round")
	})

	t.Run("a hook that panics is logged and the round goes well", func(t *testing.T) {
		t.Parallel()
		log := journal.New()
		j, err := janitor.New(newRig(t).store, janitor.Config{OnRound: func(janitor.Report, error) { panic("oops") }}, log)
		require.NoError(t, err)
		_, err = j.RunOnce(t.Context())
		require.NoError(t, err)
		require.Len(t, log.Lines(watermill.ErrorLogLevel), 1)
	})
}

func TestJanitor_Run(t *testing.T) {
	t.Parallel()

	t.Run("rounds follow each other until the context ends, also after one that failed", func(t *testing.T) {
		t.Parallel()
		for name, fails := range map[string]bool{"rounds that go well": false, "rounds that fail": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := &broken{Store: newRig(t).store, broken: map[string]bool{"reap": fails}}
				rounds, told := make(chan error, 3), make(chan error, 3)
				stop := runs(t, newJanitor(t, store, janitor.Config{
					Interval: time.Millisecond,
					OnRound:  func(_ janitor.Report, err error) { offer(rounds, err) },
					OnError:  func(err error) { offer(told, err) },
				}))
				for range 3 {
					err := <-rounds
					if !fails {
						require.NoError(t, err)
						continue
					}
					require.ErrorIs(t, err, errBroken)
					require.ErrorIs(t, <-told, errBroken)
				}
				stop()
			})
		}
	})

	t.Run("a round whose time is over before it begins does one batch of each kind of work", func(t *testing.T) {
		t.Parallel()
		store := &broken{Store: newRig(t).store, broken: map[string]bool{"reap": true}}
		rounds := make(chan error, 1)
		stop := runs(t, newJanitor(t, store, janitor.Config{
			Interval: time.Nanosecond, OnRound: func(_ janitor.Report, err error) { offer(rounds, err) },
		}))
		require.ErrorIs(t, <-rounds, errBroken)
		stop()
	})

	t.Run("Close ends Run, and a closed janitor does nothing more", func(t *testing.T) {
		t.Parallel()
		rounds := make(chan error, 1)
		j := newJanitor(t, newRig(t).store, janitor.Config{
			Interval: time.Millisecond, OnRound: func(_ janitor.Report, err error) { offer(rounds, err) },
		})
		stop := runs(t, j)
		<-rounds
		require.NoError(t, j.Close())
		stop()
		require.NoError(t, j.Close())
		require.ErrorIs(t, j.Run(t.Context()), outmill.ErrClosed)
		_, err := j.RunOnce(t.Context())
		require.ErrorIs(t, err, outmill.ErrClosed)
	})

	t.Run("two janitors share a backlog, and do each thing once", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.leftovers()
		r.elapse(2 * kept)
		r.backlog(2000)
		var sum [2]janitor.Report
		var fleet sync.WaitGroup
		for i, store := range []*sqlite.Store{r.store, r.open()} {
			j := newJanitor(t, store, janitor.Config{BatchSize: 100, Share: 1})
			fleet.Go(func() {
				var err error
				if sum[i], err = j.RunOnce(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		fleet.Wait()
		require.Equal(t, 2001, sum[0].Notes+sum[1].Notes)
		require.Equal(t, all.Total()+2000, sum[0].Total()+sum[1].Total())
	})
}

// offer hands an error to the test, unless the test has enough of them.
func offer(to chan<- error, err error) {
	select {
	case to <- err:
	default:
	}
}

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("settings that make no sense are refused by name", func(t *testing.T) {
		t.Parallel()
		for want, cfg := range map[string]janitor.Config{
			"janitor.Config.Interval is -1s: want a duration above 0":        {Interval: -time.Second},
			"janitor.Config.BatchSize is -1: want 1 to 10000":                {BatchSize: -1},
			"janitor.Config.BatchSize is 10001: want 1 to 10000":             {BatchSize: 10_001},
			"janitor.Config.Share is 1.5: want a number above 0, at most 1":  {Share: 1.5},
			"janitor.Config.Share is -0.1: want a number above 0, at most 1": {Share: -0.1, BatchSize: 20_000},
			"janitor.Config.Share is NaN: want a number above 0, at most 1":  {Share: math.NaN()},
		} {
			_, err := janitor.New(newRig(t).store, cfg, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, want)
		}
	})

	t.Run("a nil store is refused", func(t *testing.T) {
		t.Parallel()
		_, err := janitor.New((*sqlite.Store)(nil), janitor.Config{}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}

var _ roles.Sagas = (*broken)(nil)
