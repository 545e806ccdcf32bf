package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/roles"
)

// joinsWorld has three leased records. The first two are steps of one join, and the third is of none.
type joinsWorld struct {
	*ordersWorld
	join   outmill.JoinID
	leased []*outmill.Record
	// beside are calls that began while another one ran.
	beside []chan error
}

func newJoinsWorld(t *testing.T) *joinsWorld {
	t.Helper()
	w := &joinsWorld{ordersWorld: newOrdersWorld(t)}
	d := driver.New(driver.PoolOf(w.db), driver.Config{Name: "orders", Schema: "outmill"})
	w.Engine = engine.New(d, engine.Config{Retain: time.Hour, RetainJoins: time.Nanosecond})
	started := &roles.Join{Unsealed: true}
	require.NoError(t, w.StartJoin(t.Context(), started))
	w.join = started.ID
	for _, name := range []string{"first", "second"} {
		require.NoError(t, w.Append(t.Context(), &outmill.Record{
			Topic: "orders", Key: name, MessageID: name, Joins: []outmill.JoinID{w.join},
		}))
	}
	w.append("third")
	w.leased = w.claim(t.Context(), outmill.OrderKey, 10)
	require.Len(t, w.leased, 3)
	return w
}

func (w *joinsWorld) ack() error { return w.Ack(w.Context(), "worker", leasesOf(w.leased)) }

func (w *joinsWorld) attach() error { return w.AttachStep(w.Context(), w.join, w.leased[2].ID) }

// start starts a call, which ends or waits for a lock when start returns.
func (w *joinsWorld) start(call func() error) {
	ended := make(chan error, 1)
	waited := w.waiting()
	go func() { ended <- call() }()
	require.Eventually(w, func() bool { return len(ended) > 0 || w.waiting() > waited }, time.Minute, time.Millisecond)
	w.beside = append(w.beside, ended)
}

func (w *joinsWorld) waiting() int { return lockWaits(w.T, w.db) }

// What settles a step locks its records, then the step, and then the joins. Each call here starts before one of the round trips of
// another, which then meets its locks.
func TestLocks_StepsAndJoins(t *testing.T) {
	t.Parallel()
	type call func(ctx context.Context, w *joinsWorld) error
	attach := func(ctx context.Context, w *joinsWorld) error { return w.AttachStep(ctx, w.join, w.leased[2].ID) }
	for name, of := range map[string]struct {
		call   call
		beside func(w *joinsWorld) error
	}{
		"an attached step and an ack": {attach, (*joinsWorld).ack},
		"a report and an ack": {func(ctx context.Context, w *joinsWorld) error {
			return w.ReportFailed(ctx, w.join, w.leased[1].ID)
		}, (*joinsWorld).ack},
		"a deletion of joins and an ack": {func(ctx context.Context, w *joinsWorld) error {
			if err := w.CancelJoin(w.Context(), w.join, "stop"); err != nil {
				return err
			}
			_, err := w.DeleteJoins(ctx, 10)
			return err
		}, (*joinsWorld).ack},
		"an ack that attached steps change all the time": {func(ctx context.Context, w *joinsWorld) error {
			return w.Ack(ctx, "worker", leasesOf(w.leased))
		}, (*joinsWorld).attach},
	} {
		t.Run(name+" wait for each other in one order", func(t *testing.T) {
			t.Parallel()
			for from := 0; ; from++ {
				w, trips := newJoinsWorld(t), 0
				ctx := context.WithValue(t.Context(), tripKey{}, func() {
					if trips == from || trips > from && from == 0 {
						w.start(func() error { return of.beside(w) })
					}
					trips++
				})
				require.NoError(t, of.call(ctx, w))
				for _, ended := range w.beside {
					if err := <-ended; !errors.Is(err, roles.ErrUnknownMessage) {
						require.NoError(t, err)
					}
				}
				require.Zero(t, w.deadlocks.Load(), "deadlocks when the other call starts before round trip %d", from+1)
				if trips <= from {
					return
				}
			}
		})
	}
}
