package mongo_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/mongo"
)

// siege runs writers and readers while the server is killed, and keeps what they know.
type siege struct {
	stand
	t *testing.T

	mu      sync.Mutex
	tried   map[string]bool
	written map[string]bool
	handled map[string]int
	acked   map[string]bool
	wrong   []string
	writing atomic.Bool
}

// write appends records with names of its own until the end. In a transaction, it also inserts an
// order for each.
func (w *siege) write(writer int) {
	for i := 0; w.writing.Load(); i++ {
		name := fmt.Sprintf("%d/%05d", writer, i)
		w.mu.Lock()
		w.tried[name] = true
		w.mu.Unlock()
		record := &outmill.Record{Topic: "orders", Key: fmt.Sprint(writer), MessageID: name}
		var err error
		if writer%2 == 0 {
			err = w.InTx(w.t.Context(), func(ctx context.Context) error {
				if err := w.order(ctx, name); err != nil {
					return err
				}
				return w.Append(ctx, record)
			})
		} else {
			err = w.Append(w.t.Context(), record)
		}
		if err != nil {
			_ = pause(w.t.Context(), 20*time.Millisecond)
			continue
		}
		w.mu.Lock()
		w.written[name] = true
		w.mu.Unlock()
	}
}

func (w *siege) read(ctx context.Context, order outmill.Order) {
	for ctx.Err() == nil {
		req := claimOf(outmill.NewOwnerToken(), 20, order)
		// Records that were leased when the server died can soon be claimed again.
		req.Lease = 2 * time.Second
		found, err := w.Claim(ctx, req)
		if err != nil || len(found) == 0 {
			_ = pause(ctx, 20*time.Millisecond)
			continue
		}
		w.mu.Lock()
		for _, r := range found {
			w.handled[r.MessageID]++
			if w.acked[r.MessageID] {
				w.wrong = append(w.wrong, r.MessageID+" came again after its ack had been carried out")
			}
		}
		w.mu.Unlock()
		if w.Ack(ctx, "", leasesOf(found)) != nil {
			continue
		}
		w.mu.Lock()
		for _, r := range found {
			w.acked[r.MessageID] = true
		}
		w.mu.Unlock()
	}
}

func (w *siege) progress() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return min(len(w.written), len(w.acked))
}

func TestStore_Kill(t *testing.T) {
	t.Parallel()

	t.Run("a killed server loses no committed record and keeps no aborted one", func(t *testing.T) {
		testenv.Long(t, "servers that are killed and stopped")
		t.Parallel()
		s, server := ownStand(t, mongo.Config{})
		w := &siege{stand: s, t: t, tried: map[string]bool{}, written: map[string]bool{}, handled: map[string]int{}, acked: map[string]bool{}}
		w.writing.Store(true)
		ctx, stop := context.WithCancel(t.Context())
		var writers, others sync.WaitGroup
		defer others.Wait()
		defer stop()
		defer writers.Wait()
		defer w.writing.Store(false)
		for writer := range 4 {
			writers.Go(func() { w.write(writer) })
		}
		for range 2 {
			others.Go(func() { w.read(ctx, outmill.OrderKey) })
		}
		for range 3 {
			until := w.progress() + 50
			require.True(t, eventually(t.Context(), 2*patience, func() bool { return w.progress() >= until }), "the work goes on")
			require.NoError(t, server.Kill(t.Context()))
			require.NoError(t, server.Start(t.Context()))
		}
		until := w.progress() + 50
		require.True(t, eventually(t.Context(), 2*patience, func() bool { return w.progress() >= until }), "the work goes on")
		w.writing.Store(false)
		writers.Wait()
		require.True(t, eventually(t.Context(), 2*patience, func() bool {
			left, err := w.List(t.Context(), outmill.ListQuery{Limit: 1})
			return err == nil && len(left) == 0
		}), "all is handled in the end")
		stop()
		others.Wait()
		w.judge()
	})
}

func (w *siege) judge() {
	w.t.Helper()
	for name := range w.written {
		if w.handled[name] == 0 {
			w.wrong = append(w.wrong, name+" was committed and is lost")
		}
	}
	orders := w.ordered(w.t)
	for name := range w.handled {
		if !w.tried[name] {
			w.wrong = append(w.wrong, name+" was made up")
		}
		if (name[0]-'0')%2 == 0 && !slices.Contains(orders, name) {
			w.wrong = append(w.wrong, name+" was handled, and its order is not there")
		}
	}
	for _, name := range orders {
		if w.handled[name] == 0 {
			w.wrong = append(w.wrong, name+" is an order without its message")
		}
	}
	require.Empty(w.t, w.wrong)
}
