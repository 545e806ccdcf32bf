package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

func isLost(it *worker.Item) bool {
	select {
	case <-it.Lost():
		return true
	default:
		return false
	}
}

func TestItem_Commits(t *testing.T) {
	t.Parallel()
	t.Run("refuses a commit after the lease was lost", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(func(c *worker.Config) { c.Lease = time.Second })
		rec := r.append("m1")[0]
		it := r.take(w)
		require.NoError(t, it.Commits())
		it.Ended(errors.New("rolled back"))
		_, err := r.store.Delete(t.Context(), rec.ID)
		require.NoError(t, err)
		r.eventually("the item says that it is lost", func() bool { return isLost(it) })
		require.ErrorIs(t, it.Commits(), outmill.ErrLeaseLost)
		it.Release()
	})
	t.Run("refuses a commit after the end of the lease, also before the worker has noticed it", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(func(c *worker.Config) { c.Lease = time.Second })
		r.append("m1")
		r.store.failBefore("Extend", func(context.Context) error { return errors.New("unreachable") })
		it := r.take(w)
		r.eventually("the lease has ended", func() bool { return it.Left() == 0 })
		require.ErrorIs(t, it.Commits(), outmill.ErrLeaseLost)
		it.Release()
	})
	t.Run("refuses a commit after the worker has given the message up", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(nil)
		rec := r.append("m1")[0]
		it := r.take(w)
		it.GiveUp()
		require.ErrorIs(t, it.Commits(), outmill.ErrLeaseLost)
		it.Release()
		r.eventuallyStatus(rec, outmill.StatusLeased)
		r.take(w).Ack()
	})
	t.Run("keeps the message until the transaction has ended, whatever becomes of its lease", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(func(c *worker.Config) {
			c.Lease, c.MaxProcessing, c.Retry.MaxAttempts = time.Second, time.Millisecond, 1
		})
		rec := r.append("m1")[0]
		it := r.take(w)
		require.NoError(t, it.Commits())
		require.True(t, it.Started())
		from := r.store.called("Extend")
		r.eventually("leases are extended", func() bool { return r.store.called("Extend") >= from+2 })
		require.Equal(t, outmill.StatusLeased, r.get(rec).Status, "it takes longer than MaxProcessing")
		_, err := r.store.Delete(t.Context(), rec.ID)
		require.NoError(t, err)
		from = r.store.called("Extend")
		r.eventually("the lease does not stand", func() bool { return r.store.called("Extend") >= from+2 })
		require.False(t, isLost(it), "the context of the commit ends")
		it.Ended(nil)
		r.eventually("the item is given up", func() bool { return isLost(it) })
		it.Release()
	})
}

func TestItem_Ended(t *testing.T) {
	t.Parallel()
	doubt := storekit.CommitInDoubt(errors.New("the connection was lost"))
	boom := errors.New("boom")
	// judged has a record on its last attempt judged by err after its handler has done something.
	judged := func(t *testing.T, handles func(it *worker.Item), err error) (now *outmill.Record, logged int) {
		t.Helper()
		r := newRig(t)
		log := journal.New()
		w := r.start(func(c *worker.Config) { c.Retry.MaxAttempts, c.Logger, c.KeyPolicy = 1, log, outmill.KeyPark })
		rec := r.append("k:1")[0]
		it := r.take(w)
		if handles != nil {
			handles(it)
		}
		it.Judge(err)
		r.eventually("it is settled", func() bool {
			now = r.get(rec)
			return now.Status != outmill.StatusLeased
		})
		return now, len(log.Lines(watermill.ErrorLogLevel))
	}
	for name, c := range map[string]struct {
		handles func(it *worker.Item)
		err     error
	}{
		"the error says it":                          {err: doubt},
		"the error says it, and is permanent":        {err: outmill.Permanent(doubt)},
		"the error is another one":                   {func(it *worker.Item) { it.Waits(); it.Begins(); it.Ended(doubt) }, boom},
		"the error is a typed nil":                   {func(it *worker.Item) { it.Ended(doubt) }, (*outmill.InvalidRecordError)(nil)},
		"an earlier transaction was another failure": {func(it *worker.Item) { it.Ended(boom); it.Waits(); it.Ended(doubt) }, boom},
	} {
		t.Run("a commit in doubt is no attempt, also on the last one, and is logged, where "+name, func(t *testing.T) {
			t.Parallel()
			now, logged := judged(t, c.handles, c.err)
			require.Equal(t, outmill.StatusPending, now.Status)
			require.Zero(t, now.Attempts)
			require.Equal(t, 1, logged)
		})
	}
	t.Run("a lost lease is no attempt", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(func(c *worker.Config) { c.Retry.MaxAttempts = 1 })
		r.append("m1")
		r.take(w).Judge(fmt.Errorf("a note: %w", outmill.ErrLeaseLost))
		again := r.take(w)
		require.Zero(t, again.Record.Attempts)
		again.Ack()
	})
	t.Run("a doubt ends with the next transaction", func(t *testing.T) {
		t.Parallel()
		now, _ := judged(t, func(it *worker.Item) {
			it.Ended(doubt)
			it.Waits()
			it.Ended(boom)
		}, boom)
		require.Equal(t, outmill.StatusDead, now.Status)
	})
}
